"""The Python of a job: its request, files of its code, and the nodes that have it."""

from typing import Any

import pytest

from portal.compute.models import Environment
from portal.compute.services.environments import default_python
from portal.workloads.models import Workload
from portal.workloads.scheduling import run_passes
from tests.personas import Api, json_of
from tests.portal.sweeps.trials import SWEEPS, advance, start_sweep, sweep_body, trials_of
from tests.portal.training.jobs import submit, take_code
from tests.portal.workloads.machines import Machine, make_machine, make_tier

USUAL = default_python()
ENVIRONMENTS = "projects/vision/named-environments"


@pytest.fixture(autouse=True)
def newer(bob: Api) -> Machine:
    """Two machines: `old` has the portal's Python alone, and this one has newer ones, too."""
    make_machine("old", pythons=(USUAL,))
    make_tier("small", nano_usd_per_hour=3_600_000_000)
    return make_machine("new", pythons=(USUAL, "3.12", "3.13"))


def body(api: Api, files: dict[str, str] | None = None, **changes: Any) -> dict[str, Any]:
    code = {"train.py": "print(1)\n", **(files or {})}
    digest = take_code(api, {name: text.encode() for name, text in code.items()})
    return {"snapshot": digest, "script": "train.py", "tier": "small"} | changes


def accepted(api: Api, files: dict[str, str] | None = None, **changes: Any) -> tuple[Any, Any]:
    """Quote and submit a job; returns the packages of the quote, and the job."""
    request = body(api, files, **changes)
    quote = json_of(api.post("projects/vision/jobs/quote", request))
    assert quote["can_ever_run"], quote
    job = submit(api, **request)
    assert job.status_code == 201, job.content
    return quote["packages"], json_of(job)


def refused(api: Api, files: dict[str, str] | None = None, **changes: Any) -> Any:
    """The problem of a submission, which queues nothing."""
    before = Workload.objects.count()
    answer = submit(api, **body(api, files, **changes))
    assert answer.status_code == 422, answer.content
    assert Workload.objects.count() == before
    return json_of(answer)


def environment_of(job: Any) -> Environment:
    return Environment.objects.get(digest=job["environment"])


def node_of(job: Any) -> str:
    run_passes()
    workload = Workload.objects.get(pk=job["workload"]["id"])
    assert workload.state == "placed", workload.state
    name: str = workload.leases.get().node.name
    return name


@pytest.mark.postgres
def test_a_job_has_the_python_of_its_request_on_a_node_that_has_it(bob: Api) -> None:
    files = {"requirements.txt": "humanize\n", ".python-version": "3.12\n"}
    packages, job = accepted(bob, files, python="3.13")
    assert packages["python"] == "3.13"
    assert packages["explanation"] == (
        "1 package from requirements.txt. Python 3.13 of the request."
    )
    assert job["python"] == "3.13"
    assert (environment_of(job).python, environment_of(job).requirements) == ("3.13", "humanize")
    assert node_of(job) == "new"


def test_jobs_that_ask_for_no_version_are_as_they_were(bob: Api) -> None:
    packages, job = accepted(bob, {"requirements.txt": "numpy\n"})
    assert (packages["python"], packages["is_installed"]) == (USUAL, True)
    assert (job["python"], job["environment"]) == (None, None)
    packages, job = accepted(bob, {"requirements.txt": "humanize\n"})
    assert packages["explanation"] == "1 package from requirements.txt."
    assert environment_of(job).python == job["python"] == USUAL


@pytest.mark.thorough
def test_the_nearest_file_of_the_code_chooses(bob: Api) -> None:
    pinned = {".python-version": "# pyenv\ncpython-3.12.4\n", "requirements.txt": "humanize\n"}
    packages, job = accepted(bob, pinned)
    assert (packages["python"], job["python"]) == ("3.12", "3.12")
    assert packages["explanation"].endswith(" Python 3.12 from .python-version.")
    near = {"exp/train.py": "", "exp/.python-version": "3.13"}
    assert accepted(bob, pinned | near, script="exp/train.py")[1]["python"] == "3.13"
    project = '[project]\nname = "x"\nversion = "1"\nrequires-python = "{}"\n'
    packages, job = accepted(bob, {"pyproject.toml": project.format(">=3.12")})
    assert (packages["python"], job["python"]) == ("3.13", "3.13")
    assert packages["explanation"] == (
        f"No packages, because those of the installation are for Python {USUAL}. Python 3.13, "
        "because pyproject.toml requires >=3.12."
    )
    assert environment_of(job).requirements == ""
    packages, job = accepted(bob, {"pyproject.toml": project.format(">=3.9")})
    assert (packages["python"], packages["is_installed"], job["python"]) == (USUAL, True, None)
    poetry = '[tool.poetry.dependencies]\npython = "~3.12"\n'
    files = {"pyproject.toml": poetry, "requirements.txt": "humanize\n"}
    assert accepted(bob, files)[1]["python"] == "3.12"


def test_a_file_that_cannot_be_read_is_not_ignored_in_silence(bob: Api) -> None:
    packages, job = accepted(bob, {".python-version": "pypy3.10\n"})
    assert packages["explanation"] == (
        "The environment of the installation. .python-version is not used: 'pypy3.10' is not a "
        "version of CPython such as 3.12."
    )
    project = '[project]\nname = "x"\nversion = "1"\nrequires-python = "about 3"\n'
    packages, job = accepted(bob, {"pyproject.toml": project})
    assert "The range of Python in pyproject.toml is not used" in packages["explanation"]
    assert job["python"] is None


def test_a_version_that_no_node_has_is_refused_before_anything_is_queued(bob: Api) -> None:
    problem = refused(bob, python="3.14")
    assert (problem["code"], problem["field"]) == ("no_such_python", "python")
    assert problem["detail"].startswith(f"No node has Python 3.14; nodes have {USUAL}, 3.12, 3.13.")
    assert problem["next_step"].endswith("install it on a node: uv python install 3.14.")
    pinned = refused(bob, {".python-version": "3.14"})
    assert "Python 3.14 from .python-version." in pinned["detail"]
    old = refused(bob, {".python-version": "3.9"})
    assert "Slipway needs Python 3.11 or later in jobs." in old["detail"]
    assert "uv python" not in old["next_step"]
    project = '[project]\nname = "x"\nversion = "1"\nrequires-python = "<3.11"\n'
    ranged = refused(bob, {"pyproject.toml": project})
    assert "pyproject.toml requires Python <3.11." in ranged["detail"]
    for nonsense in ("three", "3", "3.12.1", "2.7", "3.²", ""):
        assert refused(bob, python=nonsense)["field"] == "python"
    container = refused(bob, python="3.12", backend="docker")
    assert (container["code"], container["field"]) == ("python_in_container", "python")


def test_the_nodes_of_the_tier_need_the_version(bob: Api) -> None:
    make_machine("gpu", gpus=2, pythons=(USUAL,))
    make_tier("gpu", gpus=1)
    problem = refused(bob, python="3.12", tier="gpu")
    assert (problem["code"], problem["field"]) == ("no_such_python", "python")
    assert problem["detail"] == (
        "No node of tier gpu can run this: its environment needs Python 3.12, and these nodes "
        f"have {USUAL}."
    )
    quote = bob.post("projects/vision/jobs/quote", body(bob, python="3.12", tier="gpu"))
    assert not json_of(quote)["can_ever_run"]
    assert "these nodes have" in json_of(quote)["explanation"]
    # A node that does not report its versions may have any.
    make_machine("unknown", gpus=2)
    assert node_of(accepted(bob, python="3.12", tier="gpu")[1]) == "unknown"


def test_a_job_waits_once_no_node_has_its_version_any_more(bob: Api, newer: Machine) -> None:
    _, job = accepted(bob, python="3.13", requirements="humanize")
    newer.beat(facts=newer.facts.model_copy(update={"pythons": [USUAL, "3.12"]}))
    run_passes()
    workload = json_of(bob.get(f"projects/vision/jobs/{job['workload']['id']}"))["workload"]
    assert workload["state"] == "queued"
    assert "its environment needs Python 3.13, and these nodes have" in workload["explanation"]
    newer.beat()
    assert node_of(job) == "new"


def test_a_clone_keeps_the_version_of_the_request(bob: Api) -> None:
    _, job = accepted(bob, python="3.12", requirements="humanize")
    path = f"projects/vision/jobs/{job['workload']['id']}/clone"
    same = json_of(bob.post(path, {}))
    assert (same["python"], same["environment"]) == ("3.12", job["environment"])
    assert json_of(bob.post(path, {"python": USUAL}))["python"] == USUAL
    assert json_of(bob.post(path, {"environment": "installation"}))["python"] is None
    moved = take_code(bob, {"train.py": b"print(2)\n"})
    assert json_of(bob.post(path, {"snapshot": moved}))["python"] == "3.12"


def test_a_named_environment_has_its_own(bob: Api) -> None:
    made = bob.post(ENVIRONMENTS, {"name": "trees", "requirements": "humanize", "python": "3.12"})
    assert made.status_code == 201, made.content
    assert json_of(bob.get(f"{ENVIRONMENTS}/trees/versions/1"))["python"] == "3.12"
    packages, job = accepted(bob, {".python-version": "3.13"}, environment="trees")
    assert (packages["python"], job["python"]) == ("3.12", "3.12")
    assert node_of(job) == "new"
    other = refused(bob, python="3.13", environment="trees")
    assert (other["code"], other["field"]) == ("other_python", "python")
    assert other["detail"] == "The environment trees has Python 3.12, not 3.13."
    # A new version keeps the Python of the one before, unless it names another one.
    more = json_of(bob.post(f"{ENVIRONMENTS}/trees/versions", {"requirements": "humanize\nsix"}))
    assert more["python"] == "3.12"
    versions = {"requirements": "humanize\nsix", "python": "3.13"}
    assert json_of(bob.post(f"{ENVIRONMENTS}/trees/versions", versions))["python"] == "3.13"
    again = bob.post(f"{ENVIRONMENTS}/trees/versions", versions)
    assert (again.status_code, json_of(again)["code"]) == (409, "same_packages")
    lacking = bob.post(ENVIRONMENTS, {"name": "x", "requirements": "x", "python": "3.14"})
    assert (lacking.status_code, json_of(lacking)["field"]) == (422, "python")


def test_a_default_environment_of_another_python_is_not_used(people: Any, bob: Api) -> None:
    bob.post(ENVIRONMENTS, {"name": "trees", "requirements": "humanize", "python": "3.12"})
    alice = Api.of(people.alice)
    alice.put("projects/vision/default-environment", {"environment": "trees"})
    assert accepted(bob)[1]["environment_version"] == "trees@1"
    project = '[project]\nname = "x"\nversion = "1"\nrequires-python = ">=3.12"\n'
    packages, job = accepted(bob, {"pyproject.toml": project})
    assert (job["environment_version"], job["python"]) == ("trees@1", "3.12")
    assert packages["explanation"] == (
        "1 package of trees@1, the project's default environment. Python 3.12 of the environment."
    )
    packages, job = accepted(bob, python="3.13")
    assert (job["environment_version"], job["python"]) == (None, "3.13")
    assert packages["explanation"].endswith(
        "Python 3.13 of the request. The project's default environment trees is not used."
    )
    packages, job = accepted(bob, python=USUAL)
    assert (job["environment_version"], job["environment"]) == (None, None)


@pytest.mark.postgres
def test_the_trials_of_a_sweep_have_its_version(bob: Api) -> None:
    ways: list[tuple[dict[str, str], dict[str, str]]] = [
        ({}, {"python": "3.12"}),
        ({".python-version": "3.12"}, {}),
        ({"requirements.txt": "humanize"}, {"python": "3.12"}),
    ]
    for files, changes in ways:
        sweep_id = start_sweep(bob, job=body(bob, files, **changes))
        advance()
        (trial, *_) = trials_of(bob, sweep_id)
        job = json_of(bob.get(f"projects/vision/jobs/{trial['job']}"))
        assert (job["python"], environment_of(job).python) == ("3.12", "3.12")
    problem = bob.post(SWEEPS, sweep_body(job=body(bob, python="3.14")))
    assert (problem.status_code, json_of(problem)["code"]) == (422, "no_such_python")


def test_a_build_ahead_is_requested_of_nodes_that_have_the_version(bob: Api) -> None:
    bob.post(ENVIRONMENTS, {"name": "trees", "requirements": "humanize", "python": "3.12"})
    built = bob.post(f"{ENVIRONMENTS}/trees/versions/1/build")
    assert built.status_code in (200, 202), built.content
    assert json_of(built)["requested"] == ["new"]
