"""Quotas through the REST API: set by administrators, seen by those they concern."""

from typing import Any

import pytest

from portal.accounts.models import AuditEvent, Project
from portal.accounts.services.teams import create_team
from portal.workloads.scheduling import run_passes
from tests.personas import Api, Personas, json_of
from tests.portal.workloads.machines import make_machine, make_tier, states_of, submit

pytestmark = pytest.mark.postgres


def test_a_quota_is_set_seen_and_kept_to(root: Api, people: Personas) -> None:
    make_machine(cpus=8)
    bob = Api.of(people.bob)
    assert json_of(bob.get("projects/vision/quota")) == {
        "cpu_millis": None,
        "gpus": None,
        "running": None,
        "weight": 1.0,
        "used_cpu_millis": 0,
        "used_gpus": 0,
        "used_running": 0,
    }
    assert root.put("quotas/projects/vision", {"cpu_millis": 2000}).status_code == 200
    tier = make_tier(cpus=1)
    jobs = [submit(people.vision, people.bob, tier) for _ in range(3)]
    run_passes()
    assert states_of(*jobs) == ["placed", "placed", "queued"]
    seen = json_of(bob.get("projects/vision/quota"))
    assert (seen["cpu_millis"], seen["used_cpu_millis"], seen["used_running"]) == (2000, 2000, 2)
    waiting = json_of(bob.get(f"projects/vision/workloads/{jobs[2].pk}"))
    assert "may use 2 CPUs at once" in waiting["explanation"]
    root.put("quotas/projects/vision", {})
    run_passes()
    assert states_of(jobs[2]) == ["placed"], "an empty quota is none"


def test_the_quota_of_a_team_is_seen_by_the_team(root: Api, people: Personas) -> None:
    team = create_team(by=people.alice, name="Crew")
    Project.objects.filter(pk=people.vision.pk).update(team=team)
    assert json_of(root.put("quotas/teams/crew", {"running": 1, "weight": 2}))["running"] == 1
    assert json_of(Api.of(people.alice).get("teams/crew/quota"))["weight"] == 2
    assert Api.of(people.charlie).get("teams/crew/quota").status_code == 404


def test_a_quota_is_recorded_with_its_numbers(root: Api) -> None:
    root.put("quotas/projects/vision", {"gpus": 4})
    event = AuditEvent.objects.get(verb="quota.set")
    assert event.project_slug == "vision"
    assert event.after is not None
    assert event.after["gpus"] == 4


@pytest.mark.parametrize("path", ["quotas/projects/none", "quotas/teams/none"])
def test_there_is_no_quota_of_nobody(root: Api, path: str) -> None:
    assert root.put(path, {"running": 1}).status_code == 404


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"running": -1}, "running"),
        ({"cpu_millis": "many"}, "cpu_millis"),
        ({"gpus": 10**7}, "gpus"),
        ({"weight": 0}, "weight"),
        ({"weights": 1}, "weights"),
    ],
)
def test_a_bad_quota_is_refused_with_field_and_next_step(
    root: Api, body: dict[str, Any], field: str
) -> None:
    answer = root.put("quotas/projects/vision", body)
    assert answer.status_code == 422
    assert json_of(answer)["field"] == field
    assert json_of(answer)["next_step"]
