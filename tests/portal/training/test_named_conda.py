"""Named environments of conda: created from a file, built, frozen, and used by jobs."""

import json
from typing import Any

import pytest
from pytest_django import Settings

from portal.compute.models import Environment
from portal.compute.services.environments import default_python
from portal.workloads.scheduling import run_passes
from tests.personas import Api, json_of
from tests.portal.training.jobs import submit, take_code
from tests.portal.training.test_conda import DIGEST, ENVIRONMENT, FORGE, lock
from tests.portal.training.test_named_environments import DEFAULT, PATH, alice, problem, quote
from tests.portal.workloads.machines import Machine, make_machine

__all__ = ["alice"]
FILE = ENVIRONMENT.replace("      - -r more.txt\n", "")
LOCKED = (
    f"# platform: linux-64\n@EXPLICIT\n{FORGE}/linux-64/numpy-2.1.0-0.conda#sha256:{DIGEST}\n"
    f"{FORGE}/linux-64/python-3.12.4-h1_0.conda#sha256:{DIGEST}\niniconfig==2.1.0"
)


def create(api: Api, requirements: str = FILE, name: str = "trees") -> Any:
    answer = api.post(PATH, {"name": name, "requirements": requirements})
    assert answer.status_code == 201, answer.content
    return json_of(answer)


def version(api: Api, name: str = "trees", number: int = 1) -> Any:
    return json_of(api.get(f"{PATH}/{name}/versions/{number}"))


def report(machine: Machine, digest: str, locked: str = LOCKED) -> None:
    """Report that the node has built an environment."""
    requests = json_of(machine.call("GET", "desired?seen=0&wait_s=0"))["builds_ahead"]
    (project,) = {request["project"] for request in requests if request["digest"] == digest}
    body = {"state": "ready", "log_offset": 0, "log": "", "size_bytes": 1, "locked": locked}
    body["project"] = project
    answer = machine.call("POST", f"environments/{digest}/reports", body)
    assert answer.status_code == 200, answer.content


@pytest.mark.postgres
def test_a_version_shows_its_packages_and_freezes_to_a_file_that_makes_it_again(
    bob: Api, machine: Machine
) -> None:
    created = create(bob)
    assert (created["packages"], created["python"], created["is_conda"]) == (4, "3.12", True)
    shown = version(bob)
    assert (shown["channels"], shown["requirements"]) == ([FORGE], "iniconfig==2.1.0")
    again = bob.post(f"{PATH}/trees/versions", {"requirements": shown["document"]})
    assert problem(again, 409)["code"] == "same_packages"
    requested = json_of(bob.post(f"{PATH}/trees/versions/1/build"))
    assert requested["requested"] == ["lab"], "the node has no Python 3.12 of its own"
    report(machine, created["digest"])
    built = version(bob)
    assert built["build"] == "ready"
    assert built["locked"].splitlines() == [
        "# platform: linux-64",
        "@EXPLICIT",
        f"{FORGE}/linux-64/numpy-2.1.0-0.conda#sha256:{DIGEST}",
        f"{FORGE}/linux-64/python-3.12.4-h1_0.conda#sha256:{DIGEST}",
        "# pip iniconfig==2.1.0",
    ]
    exact = json_of(bob.post(f"{PATH}/trees/versions", {"requirements": built["locked"]}))
    assert (exact["number"], exact["packages"], exact["python"]) == (2, 3, "3.12")
    row = Environment.objects.get(digest=exact["digest"])
    assert [*json.loads(row.conda)["archives"]] == ["linux-64"]
    assert row.requirements == "iniconfig==2.1.0"
    same = bob.post(f"{PATH}/trees/versions", {"requirements": exact["document"]})
    assert problem(same, 409)["code"] == "same_packages"


def test_locks_and_the_python_of_the_solver(bob: Api, machine: Machine) -> None:
    first = create(bob, lock())
    assert (first["packages"], first["python"]) == (2, "")
    assert version(bob)["document"].startswith("@EXPLICIT\n")
    # Sections for two processors, which lock different packages.
    both = lock() + lock("linux-aarch64", name="seven").partition("package:\n")[2]
    create(bob, both, "both")
    document = version(bob, "both")["document"]
    assert document.count("# platform: ") == 2
    again = bob.post(f"{PATH}/both/versions", {"requirements": document})
    assert problem(again, 409)["code"] == "same_packages"
    open_python = create(bob, "dependencies: [python, numpy]\n", "free")
    assert open_python["python"] == ""
    bob.post(f"{PATH}/free/versions/1/build")
    report(machine, open_python["digest"])
    assert version(bob, "free")["python"] == "3.12"
    # Packages of pip in the next version have the Python of the installation.
    answer = bob.post(f"{PATH}/free/versions", {"requirements": "humanize"})
    assert (json_of(answer)["python"], json_of(answer)["is_conda"]) == (default_python(), False)


def test_vulnerabilities_of_conda_packages_are_said_to_be_unknown(
    bob: Api, machine: Machine, settings: Settings
) -> None:
    settings.SLIPWAY_VULNERABILITIES_URL = "http://127.0.0.1:9"
    created = create(bob)
    bob.post(f"{PATH}/trees/versions/1/build")
    report(machine, created["digest"])
    audit = version(bob)["audit"]
    assert (audit["state"], audit["unchecked"]) == ("pending", 2)
    assert "2 packages of conda are not checked" in audit["reason"]
    alone = create(bob, "dependencies: [python=3.12]\n", "alone")
    bob.post(f"{PATH}/alone/versions/1/build")
    report(machine, alone["digest"], LOCKED.removesuffix("\niniconfig==2.1.0"))
    audit = version(bob, "alone")["audit"]
    assert (audit["state"], audit["unchecked"]) == ("not_checked", 2)
    assert "database has advisories on packages of PyPI only" in audit["reason"]


def test_bad_files_name_the_line(bob: Api) -> None:
    for text, field, words in (
        ("dependencies: [python]\nprefix: /opt/research\n", "requirements", "line 2"),
        ("channels: [nowhere]\ndependencies: [python]\n", "requirements", "nowhere is not among"),
        ("dependencies: [python, {pip: ['-r more.txt']}]\n", "requirements", "it names a file"),
        ("@EXPLICIT\nhttps://example.org/x\n", "requirements", "line 2"),
    ):
        refused = problem(bob.post(PATH, {"name": "trees", "requirements": text}))
        assert refused["field"] == field
        assert words.lower() in refused["detail"].lower(), refused
    body = {"name": "trees", "requirements": FILE, "python": "3.12"}
    refused = problem(bob.post(PATH, body))
    assert (refused["code"], refused["field"]) == ("python_in_conda", "python")


@pytest.mark.postgres
def test_jobs_run_in_it_by_name_and_by_default(bob: Api, alice: Api, machine: Machine) -> None:
    created = create(bob)
    packages, job = quote(bob, {"requirements.txt": "humanize"}, environment="trees")
    assert packages["explanation"] == (
        "4 packages of the environment trees@1; requirements files in the code are not used. "
        "Python 3.12 of conda."
    )
    assert (packages["environment"], packages["count"], packages["python"]) == (
        "trees@1",
        4,
        "3.12",
    )
    assert (job["environment"], job["environment_version"]) == (created["digest"], "trees@1")
    run_passes()
    spec = json_of(machine.call("GET", f"environments/{created['digest']}"))
    assert json.loads(spec["conda"])["channels"] == [FORGE]
    clone = json_of(bob.post(f"projects/vision/jobs/{job['workload']['id']}/clone", {}))
    assert clone["environment"] == created["digest"]
    digest = take_code(bob)
    refused = problem(submit(bob, snapshot=digest, environment="trees", python="3.12"))
    assert (refused["code"], refused["field"]) == ("python_in_conda", "python")
    assert json_of(alice.put(DEFAULT, {"environment": "trees"})) == {"environment": "trees"}
    packages, job = quote(bob)
    assert packages["explanation"] == (
        "4 packages of trees@1, the project's default environment. Python 3.12 of conda."
    )
    assert job["environment"] == created["digest"]
    packages, job = quote(bob, {".python-version": "3.11\n"})
    assert "default environment trees is not used" in packages["explanation"]
    assert job["environment_version"] is None


@pytest.mark.usefixtures("machine")
def test_a_container_does_not_use_it(bob: Api, alice: Api) -> None:
    create(bob)
    make_machine("docked", cpus=4, backends=("docker", "process"))
    digest = take_code(bob)
    refused = problem(submit(bob, snapshot=digest, environment="trees", backend="docker"))
    assert (refused["code"], refused["field"]) == ("conda_in_container", "environment")
    alice.put(DEFAULT, {"environment": "trees"})
    packages, _ = quote(bob, backend="docker")
    assert "default environment trees is not used" in packages["explanation"]


def test_a_node_that_does_not_keep_projects_apart_does_not_build_it_ahead(bob: Api) -> None:
    make_machine("shared", isolation=[])
    create(bob)
    refused = problem(bob.post(f"{PATH}/trees/versions/1/build"), 409)
    assert refused["code"] == "no_node_builds_ahead"
    assert "keeps the packages of projects apart" in refused["detail"]
