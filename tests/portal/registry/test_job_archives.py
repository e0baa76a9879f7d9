"""A model names packages by version; those that its job had as archives are those archives."""

import pytest

from portal.compute.services.environments import use_environment
from portal.endpoints.adapters.registry_models import RegistryModels
from tests.personas import Api, Personas, json_of
from tests.portal.registry.store import FILES, Store
from tests.portal.workloads.machines import make_machine, make_tier, submit

pytestmark = pytest.mark.django_db(databases=["default", "tracking"])
WHEEL = f"acme_tools-1.0+cpu-py3-none-any.whl#sha256={'a' * 64}"
SOURCE = f"harbour-2.0.tar.gz#sha256={'b' * 64}"
PATH = "projects/vision/models/digits"
REQUIREMENTS = b"mlflow==99\nAcme_Tools==1.0  # logged\nother==1\n"


@pytest.mark.postgres
def test_a_package_of_a_model_is_the_archive_of_its_job(
    people: Personas, bob: Api, store: Store
) -> None:
    of_job = f"acme-tools @ file:{WHEEL}\n--find-links file:{SOURCE}"
    for project, by in ((people.vision, people.bob), (people.other, people.charlie)):
        environment = use_environment(
            project=project, by=by, requirements=of_job, has_archives=True
        )
    make_machine()
    tier = make_tier()
    job = submit(people.vision, people.bob, tier, environment=environment.digest)
    foreign = submit(people.other, people.charlie, tier, environment=environment.digest)

    def served(workload: str, requirements: bytes = REQUIREMENTS) -> list[str]:
        files = {**FILES, "requirements.txt": requirements}
        run = store.run(files=files, workload=workload)
        answer = bob.post(
            "projects/vision/models/digits/versions", {"source": f"runs:/{run}/model"}
        )
        assert answer.status_code == 201, answer.content
        model = RegistryModels().find(
            project_id=people.vision.pk, model="digits", version=str(json_of(answer)["version"])
        )
        return model.requirements.splitlines()

    lines = served(job.pk)
    assert f"acme-tools @ file:{WHEEL}" in lines
    assert f"--find-links file:{SOURCE}" in lines
    assert {"mlflow==99", "other==1"} <= set(lines)
    for workload, requirements in (
        ("", REQUIREMENTS),
        (foreign.pk, REQUIREMENTS),
        (job.pk, REQUIREMENTS.replace(b"1.0", b"1.1")),
    ):
        lines = served(workload, requirements)
        assert not [line for line in lines if "sha256" in line], "no such archive of the job"
    assert f"harbour @ file:{SOURCE}" in served(job.pk, b"harbour>=2\nmlflow==99\n")
