"""The Dockerfile of a job: found, named in the quote, refused by line before anything waits."""

from collections.abc import Mapping
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from portal.compute.models import Environment
from portal.training.models import Job
from portal.workloads.models import Workload
from tests.personas import Api, Personas, json_of
from tests.portal.training.jobs import place, submit, take_code
from tests.portal.workloads.machines import Machine, make_machine

pytestmark = pytest.mark.usefixtures("machine")
TEXT = "FROM python:3.12-slim\nCOPY requirements.txt .\nRUN pip install -r requirements.txt\n"
FILES = {"Dockerfile": TEXT, "requirements.txt": "humanize\n"}


@pytest.fixture
def docked(machine: Machine) -> Machine:
    """A machine that runs containers, beside one that does not."""
    assert machine.node.backends == ["process"]
    return make_machine("docked", cpus=4, backends=("docker", "process"))


def body_of(bob: Api, files: Mapping[str, str], **changes: Any) -> dict[str, Any]:
    """The body of a job with this code, in a container."""
    code = {"train.py": "print(1)\n", **files}
    digest = take_code(bob, {name: text.encode() for name, text in code.items()})
    changes = {"backend": "docker", **changes}
    return {"snapshot": digest, "script": "train.py", "tier": "small"} | changes


def quoted(bob: Api, files: Mapping[str, str], **changes: Any) -> Any:
    """The packages of the quote."""
    quote = bob.post("projects/vision/jobs/quote", body_of(bob, files, **changes))
    assert quote.status_code == 200, quote.content
    return json_of(quote)["packages"]


def environment_of(bob: Api, files: Mapping[str, str], **changes: Any) -> Environment | None:
    """The environment of a job, None for that of the installation."""
    job = submit(bob, **body_of(bob, files, **changes))
    assert job.status_code == 201, job.content
    digest = json_of(job)["workload"]["environment"]
    return Environment.objects.filter(digest=digest).first()


@pytest.mark.postgres
@pytest.mark.usefixtures("docked")
def test_a_dockerfile_is_found_named_and_stored(people: Personas, bob: Api) -> None:
    packages = quoted(bob, FILES)
    assert packages["explanation"] == (
        "An image built from Dockerfile, with its own Python. requirements.txt counts only where "
        "the Dockerfile installs it."
    )
    assert (packages["file"], packages["python"], packages["count"]) == ("Dockerfile", "", 0)
    assert not packages["is_installed"]
    environment = environment_of(bob, FILES)
    assert environment is not None
    assert (environment.dockerfile, environment.context) == (TEXT, "")
    assert environment.copies == ["requirements.txt"]
    shown = bob.get(f"projects/vision/environments/{environment.digest}")
    assert json_of(shown)["dockerfile"] == TEXT
    workload = Workload.objects.latest("pk")
    assert workload.python == ""
    browser = Client()
    browser.force_login(people.bob)
    page = browser.get(reverse("project_job", args=("vision", workload.pk))).content.decode()
    assert "RUN pip install -r requirements.txt" in page


@pytest.mark.usefixtures("docked")
def test_only_what_it_copies_makes_another_image(bob: Api) -> None:
    first = environment_of(bob, FILES)
    assert environment_of(bob, {**FILES, "more.py": "print(2)\n"}) == first
    assert environment_of(bob, {**FILES, "requirements.txt": "attrs\n"}) != first
    assert environment_of(bob, {**FILES, "Dockerfile": TEXT + "RUN true\n"}) != first
    whole = {**FILES, "Dockerfile": "FROM python\nCOPY . /app\n"}
    environments = [environment_of(bob, whole), environment_of(bob, {**whole, "more.py": ""})]
    assert environments[0] != environments[1]
    assert [each and each.copies for each in environments] == [None, None]


@pytest.mark.usefixtures("docked")
def test_the_nearest_dockerfile_counts_with_its_folder(bob: Api) -> None:
    files = {"exp/run.py": "", "exp/Dockerfile": "FROM a.b/c\nCOPY x.txt .\n", "exp/x.txt": ""}
    environment = environment_of(bob, {**files, "Dockerfile": TEXT}, script="exp/run.py")
    assert environment is not None
    assert (environment.context, environment.copies) == ("exp", ["x.txt"])
    near = {"exp/run.py": "", "exp/requirements.txt": "six\n", "Dockerfile": TEXT}
    packages = quoted(bob, near, script="exp/run.py")
    assert packages["file"] == "exp/requirements.txt"


@pytest.mark.usefixtures("docked")
def test_another_file_or_none_can_be_chosen(bob: Api) -> None:
    files = {**FILES, "docker/gpu.Dockerfile": "FROM nvidia/cuda:12\n"}
    environment = environment_of(bob, files, requirements_file="docker/gpu.Dockerfile")
    assert environment is not None
    assert environment.dockerfile == "FROM nvidia/cuda:12\n"
    environment = environment_of(bob, files, requirements_file="requirements.txt")
    assert environment is not None
    assert (environment.dockerfile, environment.requirements) == ("", "humanize")
    assert environment_of(bob, files, requirements="") is None
    problem = json_of(submit(bob, **body_of(bob, files, requirements_file="no.Dockerfile")))
    assert "no file no.Dockerfile" in problem["detail"]


@pytest.mark.usefixtures("docked")
def test_a_clone_runs_in_the_same_image(bob: Api) -> None:
    environment = environment_of(bob, FILES)
    assert environment is not None
    job = Job.objects.latest("pk").pk
    clone = json_of(bob.post(f"projects/vision/jobs/{job}/clone", {}))
    assert clone["environment"] == environment.digest
    problem = json_of(bob.post(f"projects/vision/jobs/{job}/clone", {"backend": "process"}))
    assert (problem["code"], problem["field"]) == ("needs_container", "backend")
    assert "--backend docker" in problem["next_step"]


@pytest.mark.usefixtures("docked")
def test_outside_of_containers_the_preview_says_that_it_is_not_used(bob: Api) -> None:
    packages = quoted(bob, FILES, backend="process")
    assert packages["explanation"] == (
        "1 package from requirements.txt. Dockerfile is not used outside of containers: "
        "--backend docker builds it."
    )
    assert packages["not_used"] == ["Dockerfile"]


def test_without_a_node_for_containers_the_submission_is_refused(bob: Api) -> None:
    problem = json_of(submit(bob, **body_of(bob, FILES)))
    assert problem["code"] == "no_such_backend"
    assert "ask an administrator" in problem["next_step"]
    explanation = quoted(bob, FILES, backend="process")["explanation"]
    assert "Dockerfile is not used: it needs a node that runs containers" in explanation
    assert not Environment.objects.exclude(dockerfile="").exists()


@pytest.mark.usefixtures("docked")
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("FROM python\nRUN --mount=type=cache,target=/x true\n", "Line 2 of Dockerfile"),
        ("FROM 0a1b\n", "it may be the id of an image"),
        ("FROM python\n#" + "x" * 70_000, "larger than 64 KiB"),
    ],
)
def test_a_dockerfile_that_cannot_be_built_is_refused_before_the_job_waits(
    bob: Api, text: str, reason: str
) -> None:
    problem = json_of(submit(bob, **body_of(bob, {"Dockerfile": text})))
    assert problem["code"] == "bad_dockerfile"
    assert reason in problem["detail"]
    assert "--no-requirements" in problem["next_step"]
    assert not Workload.objects.exists()


@pytest.mark.usefixtures("docked")
def test_the_python_of_a_container_is_that_of_its_image(bob: Api) -> None:
    problem = json_of(submit(bob, **body_of(bob, FILES, python="3.12")))
    assert problem["code"] == "python_in_container"
    assert "FROM python:VERSION" in problem["next_step"]
    packages = quoted(bob, {".python-version": "3.12\n"})
    assert "a container has that of the node's image, or of a Dockerfile" in packages["explanation"]


@pytest.mark.postgres
def test_a_node_gets_the_dockerfile_of_its_task_alone(bob: Api, docked: Machine) -> None:
    job = json_of(submit(bob, **body_of(bob, FILES)))
    path = f"environments/{job['workload']['environment']}"
    assert docked.call("GET", path).status_code == 404
    place(job)
    spec = json_of(docked.call("GET", path))
    assert (spec["dockerfile"], spec["context"]) == (TEXT, "")
    assert (spec["copies"], spec["requirements"]) == (["requirements.txt"], "")
