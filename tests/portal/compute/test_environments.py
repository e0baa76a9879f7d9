"""Environments through the REST API: equal requirements, one digest, a live build log."""

from typing import Any

import pytest

from portal.workloads.scheduling import run_passes
from tests.personas import Api, Personas, json_of
from tests.portal.workloads.machines import Machine, make_machine, make_tier, submit


@pytest.fixture
def bob(people: Personas) -> Api:
    """The API as a contributor sees it."""
    return Api.of(people.bob)


def _add(api: Api, requirements: str, **more: Any) -> Any:
    answer = api.post("projects/vision/environments", {"requirements": requirements} | more)
    assert answer.status_code == 201, answer.content
    return json_of(answer)


def _build(machine: Machine, digest: str, **report: Any) -> Any:
    return machine.call("POST", f"environments/{digest}/reports", report)


def test_requirements_that_mean_the_same_are_the_same_environment(bob: Api) -> None:
    digests = {
        _add(bob, text)["digest"]
        for text in (
            "numpy==2.3.5\nscikit_learn>=1.7\n",
            "scikit-learn>=1.7 # the classifier\r\n\r\n  NumPy==2.3.5",
            "numpy==2.3.5\nnumpy==2.3.5\nScikit.Learn >= 1.7",
        )
    }
    assert len(digests) == 1
    assert _add(bob, "numpy==2.3.5")["digest"] not in digests
    assert _add(bob, "numpy==2.3.5\nscikit-learn>=1.7", python="3.12")["digest"] not in digests
    assert len(json_of(bob.get("projects/vision/environments"))["items"]) == 3


def test_the_build_is_followed_live_and_its_log_read_in_pieces(bob: Api, people: Personas) -> None:
    made = _add(bob, "numpy==2.3.5")
    machine = make_machine("rack-1")
    submit(people.vision, people.bob, make_tier(), environment=made["digest"])
    run_passes()
    path = f"projects/vision/environments/{made['digest']}"
    assert json_of(bob.get(path))["builds"] == []
    _build(machine, made["digest"], state="building", log_offset=0, log="collecting numpy\n")
    (build,) = json_of(bob.get(path))["builds"]
    assert (build["node"], build["state"], build["log_bytes"]) == ("rack-1", "building", 17)
    first: Any = bob.get(f"{path}/log?node=rack-1&limit=10")
    assert (first.getvalue(), first.headers["X-Slipway-Next-Offset"]) == (b"collecting", "10")
    report = {"state": "ready", "log_offset": 17, "log": "done\n", "locked": "numpy==2.3.5\n"}
    assert json_of(_build(machine, made["digest"], **report, size_bytes=9)) == {"next_offset": 22}
    rest: Any = bob.get(f"{path}/log?node=rack-1&offset=10")
    assert rest.getvalue() == b" numpy\ndone\n"
    shown = json_of(bob.get(path))
    assert shown["locked"] == "numpy==2.3.5\n"
    assert (shown["builds"][0]["state"], shown["builds"][0]["size_bytes"]) == ("ready", 9)
    beyond: Any = bob.get(f"{path}/log?node=rack-1&offset=1000")
    assert (beyond.status_code, beyond.getvalue()) == (200, b"")
    assert bob.get(f"{path}/log?node=other").status_code == 404


def test_a_node_reports_only_builds_it_was_asked_for(bob: Api, people: Personas) -> None:
    """Its lock file would count for everybody who uses the same requirements."""
    made = _add(bob, "numpy==2.3.5")
    machine = make_machine()
    forged = {"state": "ready", "log_offset": 0, "locked": "numpy==6.6.6"}
    assert _build(machine, made["digest"], **forged).status_code == 404
    assert json_of(bob.get(f"projects/vision/environments/{made['digest']}"))["locked"] == ""


def test_the_build_of_one_project_is_not_seen_by_another(bob: Api, people: Personas) -> None:
    """Its log may hold what code of that project printed."""
    digest = _add(bob, "numpy==2.3.5")["digest"]
    charlie = Api.of(people.charlie)
    charlie.post("projects/other/environments", {"requirements": "numpy==2.3.5"})
    machine = make_machine("rack-1")
    tier = make_tier()
    submit(people.vision, people.bob, tier, environment=digest)
    run_passes()
    begun = {"state": "building", "log_offset": 0, "build": 3}
    secret = {**begun, "project": people.vision.pk, "log": "printed by setup.py\n"}
    assert _build(machine, digest, **secret).status_code == 200
    path = f"projects/other/environments/{digest}"
    assert json_of(charlie.get(path))["builds"] == []
    assert charlie.get(f"{path}/log?node=rack-1").status_code == 404
    # A node speaks for the projects alone whose tasks it was given.
    forged = {**begun, "project": people.other.pk, "log": "x"}
    assert _build(machine, digest, **forged).status_code == 404
    submit(people.other, people.charlie, tier, environment=digest)
    run_passes()
    own = {**begun, "build": 1, "project": people.other.pk, "log": "of its own\n"}
    assert json_of(_build(machine, digest, **own)) == {"next_offset": 11}
    for api, project, text in ((bob, "vision", secret["log"]), (charlie, "other", own["log"])):
        log: Any = api.get(f"projects/{project}/environments/{digest}/log?node=rack-1")
        assert log.getvalue().decode() == text


def test_an_environment_belongs_to_the_projects_that_use_it(bob: Api, people: Personas) -> None:
    digest = _add(bob, "numpy==2.3.5")["digest"]
    charlie = Api.of(people.charlie)
    assert charlie.get(f"projects/other/environments/{digest}").status_code == 404
    environment = json_of(
        charlie.post("projects/other/environments", {"requirements": "numpy==2.3.5"})
    )
    assert environment["digest"] == digest
    assert charlie.get(f"projects/other/environments/{digest}").status_code == 200
    assert charlie.get(f"projects/vision/environments/{digest}").status_code == 404


@pytest.mark.parametrize(
    ("requirements", "message"),
    [
        ("numpy==\n", "Line 1"),
        ("numpy\n-r other.txt", "Line 2"),
        ("--pre numpy", "Line 1"),
        ("-e .", "Line 1"),
        ("./wheels/own.whl", "Line 1"),
        ("own @ file:///etc/passwd", "no files of your machine"),
        ("own @ git+ssh://example.org/x", "no SSH key"),
        ("numpy\x00", "U+0000"),
        ("a" * 300, "longer than"),
        ("\n".join(f"package-{n}" for n in range(1001)), "at most 1000"),
    ],
)
def test_requirements_that_are_no_packages_are_refused_by_line(
    bob: Api, requirements: str, message: str
) -> None:
    answer = bob.post("projects/vision/environments", {"requirements": requirements})
    assert answer.status_code == 422
    problem = json_of(answer)
    assert message in problem["detail"]
    assert problem["field"] == "requirements"
    assert problem["next_step"]
    assert json_of(bob.get("projects/vision/environments"))["items"] == []


def test_environments_are_listed_in_pages(bob: Api) -> None:
    digests = [_add(bob, f"numpy==2.{number}")["digest"] for number in range(3)]
    first = json_of(bob.get("projects/vision/environments?limit=2"))
    rest = json_of(bob.get(f"projects/vision/environments?cursor={first['next_cursor']}"))
    listed = [made["digest"] for made in first["items"] + rest["items"]]
    assert listed == digests[::-1]
    assert rest["next_cursor"] is None
