"""The network rule of a project: who sets it, where it can run, and what its tasks are given."""

from typing import Any

import pytest

from portal.accounts.models import AuditEvent
from portal.workloads.scheduling import run_passes
from slipway.schemas.agent import IsolationFacts
from tests.personas import Api, Personas, json_of
from tests.portal.workloads.machines import (
    finish,
    leases_of,
    make_machine,
    make_tier,
    report_of,
    states_of,
    submit,
)

pytestmark = pytest.mark.postgres

USERS = IsolationFacts(backend="process", level="users", detail="No user namespaces.")


def set_rule(people: Personas, rule: str) -> Any:
    return Api.of(people.alice).patch("projects/vision", {"network": rule})


def test_owners_set_it_and_everybody_in_the_project_sees_it(people: Personas) -> None:
    assert json_of(Api.of(people.vera).get("projects/vision"))["network"] == "open"
    refused = Api.of(people.mia).patch("projects/vision", {"network": "platform"})
    assert refused.status_code == 403
    assert (json_of(refused)["code"], json_of(refused)["field"]) == ("role_too_low", "network")
    assert json_of(refused)["next_step"]
    assert Api.of(people.mia).patch("projects/vision", {"name": "Vision 2"}).status_code == 200
    assert json_of(set_rule(people, "platform"))["network"] == "platform"
    assert json_of(Api.of(people.vera).get("projects/vision"))["network"] == "platform"
    assert set_rule(people, "none").status_code == 422
    event = AuditEvent.objects.filter(verb="project.change").order_by("-pk")[0]
    assert (event.before, event.after) == ({"network": "open"}, {"network": "platform"})
    assert event.actor == people.alice.email


def test_the_agent_is_told_and_the_workload_shows_it(people: Personas) -> None:
    machine, tier = make_machine("a"), make_tier()
    before = submit(people.vision, people.bob, tier)
    run_passes()
    set_rule(people, "platform")
    people.vision.refresh_from_db()
    after = submit(people.vision, people.bob, tier)
    other = submit(people.other, people.charlie, tier)
    run_passes()
    desired = json_of(machine.call("GET", "desired"))["tasks"]
    rules = {task["workload_id"]: task["spec"]["network"] for task in desired}
    assert rules == {before.pk: "open", after.pk: "platform", other.pk: "open"}
    vera = Api.of(people.vera)
    shown = {
        workload["id"]: workload["network"]
        for workload in json_of(vera.get("projects/vision/workloads"))["items"]
    }
    assert shown == {before.pk: "open", after.pk: "platform"}, "what runs keeps its network"


def test_a_new_placement_is_under_the_present_rule(people: Personas) -> None:
    machine, tier = make_machine("a"), make_tier()
    job = submit(people.vision, people.bob, tier)
    run_passes()
    set_rule(people, "platform")
    finish(job, "node_lost")
    assert states_of(job) == ["queued"]
    vera = Api.of(people.vera)
    assert json_of(vera.get(f"projects/vision/workloads/{job.pk}"))["network"] == "platform"
    run_passes()
    (task,) = json_of(machine.call("GET", "desired"))["tasks"]
    assert (task["epoch"], task["spec"]["network"]) == (2, "platform")


def test_nodes_that_cannot_enforce_it_are_not_used(people: Personas) -> None:
    make_machine("weak", cpus=8, isolation=[USERS])
    strong = make_machine("strong", cpus=1)
    tier = make_tier()
    set_rule(people, "platform")
    people.vision.refresh_from_db()
    first = submit(people.vision, people.bob, tier)
    second = submit(people.vision, people.bob, tier)
    run_passes()
    assert states_of(first, second) == ["placed", "queued"]
    assert leases_of(first)[0].node == strong.node
    free = submit(people.other, people.charlie, tier)
    run_passes()
    assert leases_of(free)[0].node.name == "weak"
    bob = Api.of(people.bob)
    assert "node strong has 0 CPUs free" in _explained(bob, second)
    strong.facts = strong.facts.model_copy(update={"isolation": [USERS]})
    strong.beat()
    assert _explained(bob, second) == (
        "Waiting: no node can fit it anymore: the network rule of its project is platform, and "
        "no node can enforce it. An owner can set the rule to open in the project's settings."
    )
    set_rule(people, "open")
    run_passes()
    assert states_of(second) == ["placed"]


def test_a_gang_that_waits_while_the_rule_changes_says_so(people: Personas) -> None:
    make_machine("a", cpus=2)
    tier = make_tier()
    filler = submit(people.vision, people.bob, tier)
    run_passes()
    gang = submit(people.vision, people.bob, tier, nodes=2)
    set_rule(people, "platform")
    finish(filler)
    run_passes()
    assert states_of(gang) == ["queued"]
    assert "network rule of project vision is now platform" in _explained(Api.of(people.bob), gang)
    later = submit(people.other, people.charlie, tier, nodes=2)
    run_passes()
    assert states_of(later) == ["placed"], "no room is kept for what cannot start"


@pytest.mark.parametrize("rule", ["open", "platform"])
def test_reports_of_agents_do_not_change_it(people: Personas, rule: str) -> None:
    machine, tier = make_machine("a"), make_tier()
    set_rule(people, rule)
    people.vision.refresh_from_db()
    job = submit(people.vision, people.bob, tier)
    run_passes()
    (lease,) = leases_of(job)
    body = {"reports": [report_of(lease, "starting")], "sent_unix_ms": 1}
    assert machine.call("POST", "reports", body).status_code == 200
    (task,) = json_of(machine.call("GET", "desired"))["tasks"]
    assert task["spec"]["network"] == rule


def _explained(api: Api, workload: Any) -> str:
    return str(json_of(api.get(f"projects/vision/workloads/{workload.pk}"))["explanation"])
