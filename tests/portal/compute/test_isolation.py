"""Isolation levels of nodes: reported by agents, shown to administrators, audited when weaker."""

from typing import Any

import pytest

from portal.accounts.models import AuditEvent
from portal.compute.models import Node
from slipway.schemas.agent import IsolationFacts
from tests.personas import Api, json_of
from tests.portal.workloads.machines import facts, make_machine

NAMESPACES = IsolationFacts(
    backend="process", level="namespaces", features=["user", "mount", "pid", "ipc", "network"]
)
SHARED = IsolationFacts(
    backend="process", level="shared", detail="The kernel refuses user namespaces."
)


def heard(machine: Any, **changes: Any) -> Any:
    """Send a heartbeat over HTTP, with the node's token."""
    body = {
        "boot_id": "boot-1",
        "facts": machine.facts.model_dump(mode="json") | changes,
        "cpu_percent": 1.0,
        "memory_used_bytes": 1,
        "running": [],
    }
    return machine.call("POST", "heartbeat", body)


def test_the_api_shows_the_level_of_each_back_end_in_plain_words(root: Api) -> None:
    docker = IsolationFacts(backend="docker", level="containers", features=["network"])
    make_machine("rack-1", backends=("process", "docker"), isolation=[SHARED, docker])
    node = json_of(root.get("nodes/rack-1"))
    assert node["isolation"] == [
        {
            "backend": "process",
            "level": "shared",
            "features": [],
            "meaning": "Tasks run as one user; one project at a time.",
            "detail": "The kernel refuses user namespaces.",
        },
        {
            "backend": "docker",
            "level": "containers",
            "features": ["network"],
            "meaning": (
                "Each task runs in its own Docker container, separate from the tasks of other "
                "projects."
            ),
            "detail": "",
        },
    ]
    assert node["mixes_projects"] is False
    assert json_of(root.get("nodes"))["items"] == [node]


def test_an_agent_that_reports_nothing_counts_as_shared(root: Api) -> None:
    make_machine("old", backends=("process", "docker"), isolation=[])
    levels = json_of(root.get("nodes/old"))["isolation"]
    assert [(each["backend"], each["level"]) for each in levels] == [
        ("process", "shared"),
        ("docker", "containers"),
    ]
    assert all("Update the agent" in each["detail"] for each in levels)


def test_of_two_reports_on_one_back_end_the_weaker_counts(root: Api) -> None:
    for number, reports in enumerate(([NAMESPACES, SHARED], [SHARED, NAMESPACES])):
        make_machine(f"odd-{number}", isolation=reports)
        (level,) = json_of(root.get(f"nodes/odd-{number}"))["isolation"]
        assert level["level"] == "shared"


def test_heartbeats_refresh_it_and_a_weaker_level_is_audited(root: Api) -> None:
    machine = make_machine("rack-1", isolation=[NAMESPACES])
    assert heard(machine).status_code == 200
    assert not AuditEvent.objects.filter(verb="node.isolation").exists()
    for _ in range(2):
        assert heard(machine, isolation=[SHARED.model_dump()]).status_code == 200
    assert json_of(root.get("nodes/rack-1"))["isolation"][0]["level"] == "shared"
    event = AuditEvent.objects.get(verb="node.isolation")
    assert (event.actor, event.target_label) == ("node rack-1", "rack-1")
    assert event.before == {"process": "namespaces (user, mount, pid, ipc, network)"}
    assert event.after == {"process": "shared"}
    assert heard(machine).status_code == 200
    assert json_of(root.get("nodes/rack-1"))["isolation"][0]["level"] == "namespaces"
    assert AuditEvent.objects.filter(verb="node.isolation").count() == 1, "stronger is no news"
    fewer = NAMESPACES.model_copy(update={"features": ["user", "mount"]})
    assert heard(machine, isolation=[fewer.model_dump()]).status_code == 200
    assert AuditEvent.objects.filter(verb="node.isolation").count() == 2


@pytest.mark.parametrize(
    "report",
    [
        {"backend": "process", "level": "perfect"},
        {"backend": "magic", "level": "namespaces"},
        {"backend": "process", "level": "users", "detail": "a\u202eb"},
        {"backend": "process", "level": "users", "detail": "x" * 501},
        {"backend": "process", "level": "users", "features": ["x" * 33]},
    ],
)
def test_a_report_that_is_not_valid_is_refused(root: Api, report: dict[str, Any]) -> None:
    machine = make_machine("rack-1", isolation=[NAMESPACES])
    assert heard(machine, isolation=[report]).status_code == 422
    assert json_of(root.get("nodes/rack-1"))["isolation"][0]["level"] == "namespaces"


def test_mixing_is_for_administrators_and_audited_once(root: Api, people: Any) -> None:
    make_machine("rack-1", isolation=[SHARED])
    assert Api.of(people.alice).patch("nodes/rack-1", {"mixes_projects": True}).status_code == 403
    assert root.patch("nodes/rack-1", {}).status_code == 200
    for _ in range(2):
        answer = root.patch("nodes/rack-1", {"mixes_projects": True})
        assert json_of(answer)["mixes_projects"] is True
    assert json_of(root.get("nodes/rack-1"))["isolation"][0]["meaning"] == (
        "Tasks run as one user, and tasks of several projects may run on this node at once. "
        "Code of one project can read files, memory and secrets of other projects that run on "
        "this node."
    )
    assert json_of(root.patch("nodes/rack-1", {"mixes_projects": False}))["mixes_projects"] is False
    verbs = AuditEvent.objects.filter(target_label="rack-1").order_by("pk")
    assert list(verbs.values_list("verb", "actor"))[-2:] == [
        ("node.mix_projects", people.root.email),
        ("node.separate_projects", people.root.email),
    ]
    assert root.patch("nodes/rack-1", {"mix_projects": True}).status_code == 422
    assert root.patch("nodes/rack-2", {"mixes_projects": True}).status_code == 404


def test_the_setting_survives_heartbeats(root: Api) -> None:
    machine = make_machine("rack-1", isolation=[SHARED])
    root.patch("nodes/rack-1", {"mixes_projects": True})
    machine.facts = facts(isolation=[SHARED], cpus=8)
    machine.beat()
    assert Node.objects.get().mixes_projects
