"""The next step after a failure depends on what failed, and names nothing that is done already."""

import pytest

from portal.compute.services.environments import use_environment
from portal.compute.services.version_packages import version_packages
from portal.workloads.models import Workload
from portal.workloads.scheduling import run_passes
from tests.personas import Personas
from tests.portal.workloads.machines import finish, make_machine, make_tier, run, submit

LOCK = f"@EXPLICIT\nhttps://conda.anaconda.org/conda-forge/noarch/six-1-0.conda#sha256:{'a' * 64}"


def failed(
    people: Personas, reason: str, message: str, requirements: str = "", conda: str = ""
) -> str:
    """The next step of a job that failed with this message. `conda` is an environment.yml."""
    make_machine()
    job = submit(people.vision, people.bob, make_tier())
    if conda:
        environment = version_packages(conda, python=None).use(people.vision, people.bob)
        Workload.objects.filter(pk=job.pk).update(environment=environment.digest)
    if requirements:
        environment = use_environment(
            project=people.vision, by=people.bob, requirements=requirements
        )
        Workload.objects.filter(pk=job.pk).update(environment=environment.digest)
    run_passes()
    run(job)
    finish(job, reason, message=message)
    job.refresh_from_db()
    return job.next_step


@pytest.mark.parametrize(
    ("message", "step"),
    [
        (
            (
                "ERROR: Could not find a version that satisfies the requirement nosuch==9 "
                "ERROR: No matching distribution found for nosuch==9"
            ),
            "Correct the name or the version of nosuch",
        ),
        (
            (
                "Because nosuch was not found in the package registry and you require nosuch, we "
                "can conclude that your requirements are unsatisfiable."
            ),
            "Correct the name or the version of nosuch",
        ),
        ("ERROR: ResolutionImpossible: for help visit", "Loosen the versions that conflict"),
        ("Failed to build `horovod==0.28`", "a wheel for this Python, which needs no compiler"),
        ("ERROR: Failed building wheel for horovod", "horovod has none"),
        ("Line 3 of the requirements, '-x', is not accepted: no.", "Correct line 3"),
        ("The environment could not be built: Connection refused", "pip configuration of the node"),
        ("The task used 9 GiB on the node's disk, more than its limit of 8 GiB.", "smaller"),
        ("'lib/x.py' has changed since it was built. Submit again", "Submit again"),
        ("No candidates were found for nosuch 1.*.", "the channels of the environment have no"),
        ("Something nobody has seen.", "Read the build log"),
    ],
)
def test_a_failed_build_says_what_to_do_about_it(people: Personas, message: str, step: str) -> None:
    assert step in failed(people, "environment_failed", message)


@pytest.mark.parametrize(
    ("module", "requirements", "step"),
    [
        ("humanize", "", "Add humanize to requirements.txt and submit again."),
        ("humanize", "six", "Add humanize to requirements.txt and submit again."),
        ("sklearn.svm", "", "Add scikit-learn to requirements.txt and submit again."),
        ("Humanize", "humanize==4", "provides no module Humanize"),
        ("torch.nope", "torch", "not its module torch.nope"),
    ],
)
def test_a_missing_module_is_not_asked_for_twice(
    people: Personas, module: str, requirements: str, step: str
) -> None:
    message = f"Rank 0 could not import a module: ModuleNotFoundError: No module named '{module}'"
    assert step in failed(people, "import_error", message, requirements)


@pytest.mark.parametrize(
    ("module", "conda", "step"),
    [
        ("humanize", "dependencies: [python]", "Add humanize to environment.yml and submit"),
        ("cv2", "dependencies: [python]", "Add opencv to environment.yml and submit again."),
        ("Humanize", "dependencies: [python, humanize =4]", "provides no module Humanize"),
        ("six.x", "dependencies: [python, {pip: [six]}]", "not its module six.x"),
        ("humanize", LOCK, "Add humanize to environment.yml, lock it and submit again."),
    ],
)
def test_a_missing_module_belongs_into_the_file_of_conda(
    people: Personas, module: str, conda: str, step: str
) -> None:
    message = f"Rank 0 could not import a module: ModuleNotFoundError: No module named '{module}'"
    assert step in failed(people, "import_error", message, conda=conda)
