"""Missed runs, overlapping runs, refused runs, and two workers at once."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from portal.compute.models import Tier
from portal.core import clock
from portal.pipelines.housekeeping import forget_old_runs
from portal.pipelines.models import ProjectSchedule
from portal.pipelines.services.progress import advance_all
from portal.spend.admission import BudgetAdmission
from portal.spend.services.budgets import set_budget
from portal.training.models import Job
from portal.workloads.ports import AdmitEverything, register_admission
from slipway.schemas.spend import BudgetIn
from tests.personas import Api, Personas, json_of
from tests.portal.pipelines.schedules import (
    NIGHTLY,
    advance,
    at,
    create_nightly,
    end_job,
    nightly,
    runs_of,
    states_of,
)
from tests.portal.workloads.machines import Machine


@pytest.fixture
def _budgets_in_force() -> Iterator[None]:
    register_admission(BudgetAdmission())
    yield
    register_admission(AdmitEverything())


def end_last(api: Api) -> None:
    """End the job of the run that goes on."""
    end_job(api, [run["job"] for run in runs_of(api) if run["state"] == "started"][-1])


def test_a_run_that_is_a_few_minutes_late_is_not_missed(bob: Api, machine: Machine) -> None:
    create_nightly(bob, missed="skip")
    advance(at(10, 2, 4))
    assert states_of(bob) == ["started"]


def test_missed_runs_are_skipped(bob: Api, machine: Machine) -> None:
    create_nightly(bob, missed="skip")
    advance(at(12, 12))
    (run,) = runs_of(bob)
    assert (run["state"], run["due_at"]) == ("skipped", "2026-12-12T02:00:00+00:00")
    assert run["reason"].startswith("3 runs were missed while Slipway was down")
    advance(at(13, 2))
    assert states_of(bob) == ["skipped", "started"]


def test_missed_runs_are_run_once(bob: Api, machine: Machine) -> None:
    create_nightly(bob, missed="once")
    advance(at(12, 12))
    missed, run = runs_of(bob)
    assert (missed["state"], run["state"]) == ("skipped", "started")
    assert missed["reason"] == (
        "2 runs were missed while Slipway was down. The next run stands for all."
    )
    assert run["due_at"] == "2026-12-12T02:00:00+00:00"


def test_missed_runs_are_not_run_beside_one_that_is_due_now(bob: Api, machine: Machine) -> None:
    create_nightly(bob, missed="once")
    advance(at(12, 2, 1))
    missed, run = runs_of(bob)
    assert (missed["state"], run["state"]) == ("skipped", "started")
    assert run["due_at"] == "2026-12-12T02:00:00+00:00"


@pytest.mark.postgres
def test_all_missed_runs_are_run_one_after_the_other(bob: Api, machine: Machine) -> None:
    create_nightly(bob, missed="all")
    advance(at(12, 2, 1))
    assert states_of(bob) == ["started", "waiting", "waiting"]
    advance(at(12, 2, 2))
    assert states_of(bob) == ["started", "waiting", "waiting"]
    end_last(bob)
    advance(at(12, 2, 3))
    assert states_of(bob) == ["started", "started", "waiting"]
    end_last(bob)
    advance(at(12, 2, 4))
    assert states_of(bob) == ["started", "started", "started"]


def test_of_very_many_missed_runs_the_last_hundred_are_run(bob: Api, machine: Machine) -> None:
    create_nightly(bob, missed="all", cron="*/10 * * * *")
    advance(at(11, 20, 8))  # two days, 288 times
    runs = runs_of(bob)
    assert len(runs) == 101
    assert runs[0]["state"] == "skipped"
    assert runs[0]["reason"].startswith("188 runs were missed")
    assert runs[-1]["due_at"] == "2026-12-11T20:00:00+00:00"


def test_a_run_is_skipped_while_the_one_before_goes_on(bob: Api, machine: Machine) -> None:
    create_nightly(bob, overlap="skip")
    advance(at(10, 2))
    advance(at(11, 2))
    assert states_of(bob) == ["started", "skipped"]
    assert runs_of(bob)[1]["reason"] == "The run before it had not ended."
    end_last(bob)
    advance(at(12, 2))
    assert states_of(bob) == ["started", "skipped", "started"]


def test_a_run_waits_until_the_one_before_has_ended(bob: Api, machine: Machine) -> None:
    create_nightly(bob, overlap="queue")
    advance(at(10, 2))
    advance(at(11, 2))
    assert states_of(bob) == ["started", "waiting"]
    end_last(bob)
    advance(at(11, 3))
    assert states_of(bob) == ["started", "started"]


@pytest.mark.postgres
def test_a_run_cancels_the_one_before(bob: Api, machine: Machine) -> None:
    create_nightly(bob, overlap="cancel")
    advance(at(10, 2))
    advance(at(11, 2))
    old, new = runs_of(bob)
    assert (old["outcome"], new["state"]) == ("stopped", "started")
    job = json_of(bob.get(f"projects/vision/jobs/{old['job']}"))
    assert job["workload"]["explanation"] == "Cancelled for the next run of the schedule nightly."


def test_pausing_and_deleting_leave_out_what_waits(bob: Api, machine: Machine) -> None:
    create_nightly(bob, overlap="queue")
    advance(at(10, 2))
    advance(at(11, 2))
    bob.post(f"{NIGHTLY}/pause")
    end_last(bob)
    advance(at(11, 3))
    assert states_of(bob) == ["started", "skipped"]
    assert runs_of(bob)[1]["reason"] == "The schedule was paused by Bob."


def test_runs_that_started_nothing_are_forgotten_after_ninety_days(
    bob: Api, machine: Machine
) -> None:
    create_nightly(bob, overlap="skip")
    for day in (10, 11, 12):
        advance(at(day, 2))
    assert states_of(bob) == ["started", "skipped", "skipped"]
    with clock.frozen(at(11, 3) + timedelta(days=90)):
        assert forget_old_runs() == 1
    assert states_of(bob) == ["started", "skipped"]


@pytest.mark.postgres
def test_two_workers_start_one_run(bob: Api, machine: Machine) -> None:
    create_nightly(bob)
    depth = 0

    def other_worker_first(execute: Any, sql: str, *rest: Any) -> Any:
        """Let another worker do all of its work before each claim of this one."""
        nonlocal depth
        if sql.startswith('UPDATE "pipelines_projectschedule" ') and depth < 1:
            depth += 1
            advance_all()
            depth -= 1
        return execute(sql, *rest)

    with clock.frozen(at(10, 2)), connection.execute_wrapper(other_worker_first):
        advance_all()
    assert states_of(bob) == ["started"]
    assert Job.objects.count() == 2  # with the template
    assert ProjectSchedule.objects.get().started == 1


@pytest.mark.postgres
@pytest.mark.usefixtures("_budgets_in_force")
def test_a_budget_refuses_runs_and_pauses_the_schedule_after_five(
    bob: Api, people: Personas, machine: Machine
) -> None:
    create_nightly(bob)
    set_budget(by=people.alice, spec=BudgetIn(project="vision", limit_nano_usd=1))
    advance(at(10, 2))
    (run,) = runs_of(bob)
    assert run["state"] == "refused"
    assert "budget" in run["reason"].lower()
    (note,) = [
        item for item in json_of(bob.get("notifications"))["items"] if item["kind"] == "schedule"
    ]
    assert (note["title"], note["waits_for_you"]) == ("nightly: run refused", True)
    for day in range(11, 16):
        advance(at(day, 2))
    schedule = nightly(bob)
    assert schedule["state"] == "paused"
    assert schedule["explanation"].startswith("5 runs in a row were refused. The last of them:")
    assert states_of(bob) == ["refused"] * 5


def test_a_tier_that_is_gone_refuses_the_run_and_a_later_run_clears_the_reason(
    bob: Api, machine: Machine
) -> None:
    create_nightly(bob)
    Tier.objects.update(is_active=False)
    advance(at(10, 2))
    assert states_of(bob) == ["refused"]
    assert "small" in nightly(bob)["explanation"]
    Tier.objects.update(is_active=True)
    advance(at(11, 2))
    assert states_of(bob) == ["refused", "started"]
    assert nightly(bob)["explanation"] == ""
