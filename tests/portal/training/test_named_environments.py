"""Named environments of a project through the REST API, and jobs that run in them."""

from datetime import timedelta
from typing import Any

import pytest

from portal.accounts.models import AuditEvent
from portal.compute.models import EnvironmentVersion, NamedEnvironment
from portal.core.clock import frozen, now
from portal.training.models import Job
from portal.workloads.scheduling import run_passes
from tests.personas import Api, Personas, json_of
from tests.portal.training.jobs import submit, take_code
from tests.portal.workloads.machines import Machine, make_machine

PATH = "projects/vision/named-environments"
DEFAULT = "projects/vision/default-environment"


@pytest.fixture
def alice(people: Personas) -> Api:
    """The owner of the project."""
    return Api.of(people.alice)


def create(api: Api, name: str = "trees", requirements: str = "Scikit_Learn>=1.7\n") -> Any:
    answer = api.post(PATH, {"name": name, "requirements": requirements})
    assert answer.status_code == 201, answer.content
    return json_of(answer)


def problem(answer: Any, status: int = 422) -> Any:
    assert answer.status_code == status, answer.content
    return json_of(answer)


def quote(api: Api, files: dict[str, str] | None = None, **changes: Any) -> Any:
    code = {"train.py": "print(1)\n", **(files or {})}
    digest = take_code(api, {name: text.encode() for name, text in code.items()})
    body = {"snapshot": digest, "script": "train.py", "tier": "small"} | changes
    answer = api.post("projects/vision/jobs/quote", body)
    assert answer.status_code == 200, answer.content
    job = submit(api, **body)
    assert job.status_code == 201, job.content
    return json_of(answer)["packages"], json_of(job)


def test_versions_are_numbered_and_do_not_change(bob: Api, people: Personas) -> None:
    first = create(bob)
    assert (first["name"], first["version"], first["packages"]) == ("trees", 1, 1)
    assert (first["build"], first["is_default"]) == ("not_built", False)
    answer = bob.post(f"{PATH}/trees/versions", {"requirements": "scikit-learn\nlightgbm"})
    second = json_of(answer)
    assert (second["reference"], second["packages"]) == ("trees@2", 2)
    assert second["requirements"] == "lightgbm\nscikit-learn"
    assert json_of(bob.get(f"{PATH}/trees/versions/1"))["requirements"] == "scikit-learn>=1.7"
    numbers = [row["number"] for row in json_of(bob.get(f"{PATH}/trees/versions"))["items"]]
    assert numbers == [2, 1]
    again = bob.post(f"{PATH}/trees/versions", {"requirements": "LightGBM\nscikit-learn\n"})
    assert problem(again, 409)["code"] == "same_packages"
    (row,) = json_of(bob.get(PATH))["items"]
    assert (row["version"], row["digest"]) == (2, second["digest"])
    verbs = AuditEvent.objects.filter(target_kind="named_environment").values_list("verb")
    assert {verb for (verb,) in verbs} == {"named_environment.create", "named_environment.version"}


def test_bad_input_names_field_reason_and_next_step(bob: Api) -> None:
    create(bob)
    taken = problem(bob.post(PATH, {"name": "trees", "requirements": "x"}), 409)
    assert (taken["code"], taken["field"]) == ("name_taken", "name")
    reserved = problem(bob.post(PATH, {"name": "installation", "requirements": "x"}))
    assert (reserved["code"], reserved["field"]) == ("name_reserved", "name")
    bad = problem(bob.post(PATH, {"name": "other", "requirements": "ok\n../evil.whl\n"}))
    assert bad["field"] == "requirements"
    assert "Line 2 of the requirements" in bad["detail"]
    empty = problem(bob.post(PATH, {"name": "other", "requirements": "# nothing\n"}))
    assert (empty["code"], empty["field"]) == ("no_packages", "requirements")
    assert NamedEnvironment.objects.count() == EnvironmentVersion.objects.count() == 1


def test_readers_look_and_others_do_not_know(bob: Api, people: Personas) -> None:
    create(bob)
    reader, outsider = Api.of(people.vera), Api.of(people.charlie)
    assert json_of(reader.get(f"{PATH}/trees"))["name"] == "trees"
    assert reader.post(PATH, {"name": "x", "requirements": "x"}).status_code == 403
    assert outsider.get(f"{PATH}/trees").status_code == 404
    assert bob.put(DEFAULT, {"environment": "trees"}).status_code == 403


@pytest.mark.usefixtures("machine")
def test_a_job_stores_the_version_it_runs_in(bob: Api) -> None:
    create(bob)
    packages, job = quote(bob, {"requirements.txt": "humanize"}, environment="trees")
    assert packages["explanation"] == (
        "1 package of the environment trees@1; requirements files in the code are not used."
    )
    assert (packages["environment"], packages["count"]) == ("trees@1", 1)
    assert job["environment_version"] == "trees@1"
    assert job["environment"] == json_of(bob.get(f"{PATH}/trees"))["digest"]
    bob.post(f"{PATH}/trees/versions", {"requirements": "lightgbm"})
    assert quote(bob, environment="trees")[1]["environment_version"] == "trees@2"
    assert quote(bob, environment="trees@1")[1]["environment_version"] == "trees@1"
    clone = bob.post(f"projects/vision/jobs/{job['workload']['id']}/clone", {})
    assert json_of(clone)["environment_version"] == "trees@1"
    other = bob.post(
        f"projects/vision/jobs/{job['workload']['id']}/clone", {"environment": "trees@2"}
    )
    assert json_of(other)["environment_version"] == "trees@2"
    packages, job = quote(bob, requirements="six", environment="trees")
    assert packages["explanation"] == (
        "1 package of the request. The environment trees is not used."
    )
    assert job["environment_version"] is None
    packages, job = quote(bob, {"requirements.txt": "humanize"}, environment="installation")
    assert packages["explanation"] == "The environment of the installation."
    assert job["environment"] is None


@pytest.mark.usefixtures("machine")
def test_the_default_is_that_of_jobs_that_name_no_packages(bob: Api, alice: Api) -> None:
    create(bob)
    create(bob, "boosting", "lightgbm")
    assert json_of(alice.put(DEFAULT, {"environment": "trees"})) == {"environment": "trees"}
    packages, job = quote(bob, {"Dockerfile": "FROM x\n"})
    assert packages["explanation"] == (
        "1 package of trees@1, the project's default environment. Dockerfile is not used: it needs "
        "a node that runs containers, and there is none. An administrator starts an agent with "
        "--backend docker."
    )
    assert job["environment_version"] == "trees@1"
    packages, job = quote(bob, {"requirements.txt": "humanize"})
    assert packages["explanation"] == (
        "1 package from requirements.txt. The project's default environment trees is not used."
    )
    assert job["environment_version"] is None
    assert quote(bob, requirements="")[1]["environment"] is None
    alice.put(DEFAULT, {"environment": "boosting"})
    assert quote(bob)[1]["environment_version"] == "boosting@1"
    assert NamedEnvironment.objects.filter(is_default=True).count() == 1
    archive = problem(bob.post(f"{PATH}/boosting/archive", {}), 409)
    assert archive["code"] == "environment_is_default"
    assert json_of(alice.put(DEFAULT, {"environment": None})) == {"environment": None}
    assert json_of(bob.get(DEFAULT)) == {"environment": None}
    # A clone runs as its original did, whatever the default is by then.
    assert bob.post(f"{PATH}/boosting/archive", {}).status_code == 200
    alice.put(DEFAULT, {"environment": "trees"})
    original = quote(bob, requirements="")[1]
    clone = bob.post(f"projects/vision/jobs/{original['workload']['id']}/clone", {})
    assert json_of(clone)["environment"] is None


@pytest.mark.usefixtures("machine")
def test_unknown_and_archived_environments_are_refused(bob: Api, alice: Api) -> None:
    create(bob)
    take_code(bob)
    unknown = problem(submit(bob, environment="tree"))
    assert (unknown["code"], unknown["field"]) == ("no_such_environment", "environment")
    assert "slipway env create tree" in unknown["next_step"]
    version = problem(submit(bob, environment="trees@7"))
    assert version["code"] == "no_such_environment_version"
    assert version["next_step"] == "Use trees@1, or trees for the latest."
    assert problem(submit(bob, environment="Trees@x"))["field"] == "environment"
    assert bob.post(f"{PATH}/trees/archive", {}).status_code == 200
    archived = problem(submit(bob, environment="trees"))
    assert (archived["code"], archived["field"]) == ("environment_archived", "environment")
    assert problem(alice.put(DEFAULT, {"environment": "trees"}))["code"] == "environment_archived"
    late = bob.post(f"{PATH}/trees/versions", {"requirements": "six"})
    assert problem(late, 409)["code"] == "environment_archived"
    assert json_of(bob.get(PATH))["items"] == []
    assert [row["name"] for row in json_of(bob.get(f"{PATH}?archived=true"))["items"]] == ["trees"]
    assert json_of(bob.post(f"{PATH}/trees/restore", {}))["archived_at"] is None
    assert submit(bob, environment="trees").status_code == 201
    assert Job.objects.latest("pk").environment_version is not None


def test_a_build_shows_its_state_and_exact_versions(bob: Api, machine: Machine) -> None:
    create(bob, requirements="humanize")
    _, job = quote(bob, environment="trees")
    run_passes()
    report = {"state": "ready", "log_offset": 0, "log": "done\n", "size_bytes": 9}
    report["locked"] = "humanize==4.1.0\n"
    machine.call("POST", f"environments/{job['environment']}/reports", report)
    version = json_of(bob.get(f"{PATH}/trees/versions/1"))
    assert (version["build"], version["locked"]) == ("ready", "humanize==4.1.0\n")
    assert [(build["node"], build["size_bytes"]) for build in version["builds"]] == [("lab", 9)]
    assert json_of(bob.get(f"{PATH}/trees"))["build"] == "ready"


def test_a_build_ahead_is_requested_from_nodes_and_ends_with_their_report(
    bob: Api, machine: Machine
) -> None:
    digest = create(bob, requirements="humanize")["digest"]
    build = f"{PATH}/trees/versions/1/build"
    version = json_of(bob.post(build))
    assert (version["requested"], version["build"]) == (["lab"], "not_built")
    assert json_of(bob.post(build))["requested"] == ["lab"]  # the same request
    with frozen(now() + timedelta(hours=3)):
        # A node that does not answer is not waited for: pages would look again for ever.
        assert json_of(bob.get(f"{PATH}/trees/versions/1"))["requested"] == []
    state = json_of(machine.call("GET", "desired?seen=0&wait_s=0"))
    (request,) = state["builds_ahead"]
    assert request["digest"] == digest
    assert json_of(machine.call("GET", f"environments/{digest}"))["requirements"] == "humanize"
    report = {"project": request["project"], "state": "building", "log_offset": 0, "log": "one\n"}
    assert machine.call("POST", f"environments/{digest}/reports", report).status_code == 200
    assert json_of(bob.get(f"{PATH}/trees"))["build"] == "building"
    other = {**report, "project": "prj_other", "log_offset": 4}
    assert machine.call("POST", f"environments/{digest}/reports", other).status_code == 404
    report |= {"state": "ready", "log_offset": 4, "log": "", "locked": "humanize==4.1.0\n"}
    assert machine.call("POST", f"environments/{digest}/reports", report).status_code == 200
    version = json_of(bob.get(f"{PATH}/trees/versions/1"))
    assert (version["requested"], version["build"]) == ([], "ready")
    assert json_of(machine.call("GET", "desired?seen=0&wait_s=0"))["builds_ahead"] == []
    assert machine.call("GET", f"environments/{digest}").status_code == 404
    assert problem(bob.post(build), 409)["code"] == "already_built"


def test_a_node_that_cannot_keep_projects_apart_builds_wheels_alone(bob: Api) -> None:
    create(bob)
    build = f"{PATH}/trees/versions/1/build"
    assert problem(bob.post(build), 409)["code"] == "no_node_builds_ahead"
    for name, levels in (("apart", None), ("shared", [])):
        node = make_machine(name, isolation=levels)
        if name == "apart":
            assert json_of(bob.post(build))["requested"] == ["apart"]
        else:
            assert json_of(bob.post(build))["requested"] == ["apart", "shared"]
        (request,) = json_of(node.call("GET", "desired?seen=0&wait_s=0"))["builds_ahead"]
        assert request["from_source"] is (name == "apart")
