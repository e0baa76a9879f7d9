"""Nodes through the REST API: joined, seen, closed for work, emptied, removed."""

from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from portal.accounts.models import AuditEvent
from portal.compute.models import JoinToken, Node
from portal.core import clock
from portal.workloads.reconciler import reconcile
from portal.workloads.scheduling import run_passes
from slipway.schemas.workloads import WorkloadState
from tests.personas import Api, Personas, json_of
from tests.portal.workloads.machines import (
    NOTEBOOK,
    after,
    facts,
    finish,
    make_machine,
    make_tier,
    run,
    state_of,
    submit,
)

pytestmark = pytest.mark.postgres


def _join(secret: str, name: str) -> Any:
    body = {"join_token": secret, "name": name, "facts": facts().model_dump()}
    return Client().post("/api/agent/v1/join", body, content_type="application/json")


def test_an_administrator_makes_a_token_and_the_machine_shows_up(root: Api) -> None:
    answer = root.post("nodes/join-tokens", {"expires_in_minutes": 5})
    assert answer.status_code == 201
    made = json_of(answer)
    assert made["command"].startswith("slipway node join http")
    assert made["command"].endswith(" --token -"), "ps would show a token on the command line"
    assert _join(made["join_token"], "rack-1").status_code == 201
    (node,) = json_of(root.get("nodes"))["items"]
    assert node == json_of(root.get("nodes/rack-1"))
    assert node["capacity"] == {"cpu_millis": 4000, "memory_bytes": 16 * 1024**3, "gpus": 0}
    assert node["free"] == node["capacity"]
    assert node["state"] == "lost", "it has joined and has not sent a heartbeat yet"


def test_the_secret_of_a_token_is_shown_once_and_stored_nowhere(root: Api) -> None:
    secret = json_of(root.post("nodes/join-tokens", {}))["join_token"]
    stored = str(list(JoinToken.objects.values())) + str(list(AuditEvent.objects.values()))
    assert secret not in stored


def test_a_node_tells_what_is_free_and_how_it_does(root: Api, people: Personas) -> None:
    machine = make_machine("rack-1", labels={"zone": "a"}, gpus=2)
    submit(people.vision, people.bob, make_tier(cpus=1, gib=4, gpus=1))
    run_passes()
    machine.beat(cpu_percent=42.5)
    node = json_of(root.get("nodes/rack-1"))
    assert (node["state"], node["tasks"], node["cpu_percent"]) == ("ready", 1, 42.5)
    assert node["free"] == {"cpu_millis": 3000, "memory_bytes": 12 * 1024**3, "gpus": 1}
    assert (node["labels"], node["gpu_models"]) == ({"zone": "a"}, ["H100", "H100"])


def test_a_silent_node_is_shown_as_lost_within_a_minute(root: Api) -> None:
    make_machine("rack-1")
    with clock.frozen(after(26)):
        node = json_of(root.get("nodes/rack-1"))
        assert node["state"] == "ready"
        assert "missed two heartbeats" in node["reason"]
    with clock.frozen(after(60)):
        node = json_of(root.get("nodes/rack-1"))
        assert node["state"] == "lost"
        assert node["reason"]


def test_a_cordoned_node_keeps_what_it_has_and_gets_nothing_new(
    root: Api, people: Personas
) -> None:
    make_machine("rack-1")
    tier = make_tier()
    first = submit(people.vision, people.bob, tier)
    run_passes()
    answer = root.post("nodes/rack-1/cordon", {"reason": "new memory on Monday"})
    assert json_of(answer)["state"] == "cordoned"
    second = submit(people.vision, people.bob, tier)
    run_passes()
    assert (state_of(first), state_of(second)) == (WorkloadState.PLACED, WorkloadState.QUEUED)
    shown = json_of(Api.of(people.vera).get(f"projects/vision/workloads/{second.pk}"))
    assert "new memory on Monday" in shown["explanation"]
    assert json_of(root.post("nodes/rack-1/uncordon"))["state"] == "ready"
    run_passes()
    assert state_of(second) == WorkloadState.PLACED


def test_draining_moves_jobs_and_leaves_a_notebook_until_it_ends(
    root: Api, people: Personas
) -> None:
    make_machine("rack-1")
    tier = make_tier()
    job = submit(people.vision, people.bob, tier)
    notebook = submit(people.vision, people.bob, tier, kind=NOTEBOOK.name)
    run_passes()
    run(job)
    run(notebook)
    assert json_of(root.post("nodes/rack-1/drain", {"reason": "retiring"}))["state"] == "draining"
    reconcile()
    assert state_of(job) == WorkloadState.STOPPING
    assert state_of(notebook) == WorkloadState.RUNNING
    finish(job, "preempted")
    assert state_of(job) == WorkloadState.QUEUED
    problem = root.delete("nodes/rack-1")
    assert problem.status_code == 409
    assert json_of(problem)["code"] == "node_in_use"
    finish(notebook)
    assert root.delete("nodes/rack-1").status_code == 204


def test_a_removed_node_is_gone_and_its_name_is_free(root: Api) -> None:
    machine = make_machine("rack-1")
    assert root.delete("nodes/rack-1").status_code == 204
    assert root.get("nodes/rack-1").status_code == 404
    assert root.delete("nodes/rack-1").status_code == 404
    assert machine.call("GET", "desired").status_code == 401
    make_machine("rack-1")
    assert len(json_of(root.get("nodes"))["items"]) == 1


def test_asking_twice_is_as_good_as_once_and_recorded_once(root: Api) -> None:
    make_machine("rack-1")
    for _ in range(2):
        assert json_of(root.post("nodes/rack-1/cordon", {}))["state"] == "cordoned"
    assert AuditEvent.objects.filter(verb="node.cordon").count() == 1


def test_nodes_are_listed_in_pages(root: Api) -> None:
    for number in range(5):
        make_machine(f"rack-{number}")
    names: list[str] = []
    cursor = ""
    while True:
        page = json_of(root.get(f"nodes?limit=2{cursor}"))
        names += [node["name"] for node in page["items"]]
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert names == ["rack-4", "rack-3", "rack-2", "rack-1", "rack-0"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"expires_in_minutes": 0}, "expires_in_minutes"),
        ({"expires_in_minutes": 10**6}, "expires_in_minutes"),
        ({"node": "Rack 1"}, "node"),
        ({"nodes": "rack-1"}, "nodes"),
    ],
)
def test_a_bad_join_token_is_refused_with_field_and_next_step(
    root: Api, body: dict[str, Any], field: str
) -> None:
    answer = root.post("nodes/join-tokens", body)
    assert answer.status_code == 422
    problem = json_of(answer)
    assert problem["field"] == field
    assert problem["next_step"]
    assert not JoinToken.objects.exists()


def test_the_machine_itself_hands_out_tokens_for_its_own_agent(
    people: Personas, capsys: pytest.CaptureFixture[str]
) -> None:
    """What `manage.py up` does for the embedded agent, each time it has no identity left."""
    secrets = []
    for _ in range(2):
        call_command("node_token", "--node", "local")
        secrets.append(capsys.readouterr().out.strip())
    assert all(_join(secret, "local").status_code == 201 for secret in secrets)
    assert [node.name for node in Node.objects.present()] == ["local"]
    assert _join(secrets[0], "stranger").status_code == 401
    assert AuditEvent.objects.filter(verb="node.invite")[0].actor == "manage.py node_token"
    with pytest.raises(CommandError, match="lower-case"):
        call_command("node_token", "--node", "Not A Name")


def test_tokens_nobody_came_with_are_swept_away(
    people: Personas, capsys: pytest.CaptureFixture[str]
) -> None:
    call_command("node_token", "--node", "local")
    with clock.frozen(after(11 * 60)):
        call_command("node_token", "--node", "local")
    assert JoinToken.objects.count() == 1
    assert len(capsys.readouterr().out.split()) == 2
