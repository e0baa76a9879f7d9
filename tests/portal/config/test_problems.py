"""Problems of the installation are shown where people look: Home, readiness, waiting work."""

from datetime import timedelta

import pytest
from django.db.models.functions import Now
from django.test import Client

from portal.config.leader_lock import LeaderLock
from portal.config.models import Leadership
from portal.workloads.scheduling import run_passes
from tests.personas import Api, Personas, json_of
from tests.portal.workloads.machines import make_machine, make_tier, submit

pytestmark = pytest.mark.postgres

NOBODY = "No control worker has run for 3 minutes, so no work is scheduled, started or stopped."


def stop_scheduling(for_s: int) -> None:
    """Let the last control worker have ended a while ago."""
    LeaderLock("beat", "control").acquire_or_renew()
    Leadership.objects.update(expires_at=Now() - timedelta(seconds=for_s))


def test_people_see_that_nobody_schedules(people: Personas, client: Client) -> None:
    make_machine("node-1", cpus=4, gib=4)
    tier = make_tier(cpus=4)
    submit(people.vision, people.bob, tier)
    waiting = submit(people.vision, people.bob, tier)
    run_passes()
    stop_scheduling(for_s=200)
    assert client.get("/readyz").json()["problems"]["scheduler"].startswith(NOBODY)
    shown = json_of(Api.of(people.bob).get(f"projects/vision/workloads/{waiting.pk}"))
    assert shown["explanation"].startswith(f"Waiting: n{NOBODY[1:]}")
    client.force_login(people.bob)
    assert NOBODY in client.get("/").content.decode()


@pytest.mark.django_db
@pytest.mark.parametrize("for_s", [-3, 2])
def test_a_control_worker_that_is_restarted_is_no_problem(client: Client, for_s: int) -> None:
    stop_scheduling(for_s)
    assert client.get("/readyz").json() == {
        "ready": True,
        "checks": {"database": True, "migrations": True},
        "reasons": {},
        "problems": {},
    }
