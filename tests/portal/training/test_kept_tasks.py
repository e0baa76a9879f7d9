"""Failed tasks that are kept for shells: what everybody sees, what ends them, what they cost."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from pytest_django import Settings

from portal.accounts.models import AuditEvent
from portal.core import clock
from portal.pipelines.models import ProjectSchedule
from portal.workloads.lifecycle import StopOutcome
from portal.workloads.models import Lease, Workload, WorkloadEvent
from portal.workloads.reconciler import reconcile, stop_and_requeue
from portal.workloads.retries import NEXT_STEPS
from portal.workloads.scheduling import run_passes
from portal.workloads.services.cancellation import stop_workload
from portal.workloads.silence import find_silent
from slipway.schemas.workloads import ReasonCode
from tests.personas import Api, Personas, json_of
from tests.portal.training.jobs import made_job, place, submit, take_code
from tests.portal.workloads.machines import Machine, leases_of, run, send_report
from tests.security.problems import refusal

pytestmark = pytest.mark.postgres

MESSAGE = "Rank 0 exited with status 1: ValueError: loss is NaN"
_FAILURE: dict[str, Any] = {
    "reason": "exit",
    "message": MESSAGE,
    "exit_code": 1,
    "ranks": [{"rank": 0, "exit_code": 1}],
    "cpu_seconds": 2.5,
    "log_tail": "ValueError: loss is NaN",
}


@contextmanager
def _minutes_later(minutes: float) -> Iterator[None]:
    with clock.frozen(clock.now() + timedelta(minutes=minutes)):
        yield


def fail(workload: Workload, **changes: Any) -> None:
    """Report the failure of the task of a workload."""
    (lease,) = leases_of(workload)
    send_report(lease, "failed", 3, **{**_FAILURE, **changes})
    workload.refresh_from_db()


def end_kept(workload: Workload, why: str, **changes: Any) -> None:
    """Report the end of the kept task of a workload."""
    (lease,) = leases_of(workload)
    send_report(lease, "ended", 4, **{**_FAILURE, "kept_end": why, **changes})
    workload.refresh_from_db()


def _running(api: Api, **changes: Any) -> Workload:
    job = place(made_job(api, **{"keep_failed_minutes": 15, **changes}))
    run(job)
    return job


@pytest.fixture
def kept(machine: Machine, bob: Api) -> Workload:
    """A job of Bob's that has failed and is kept for 15 minutes."""
    job = _running(bob)
    fail(job)
    return job


def _page(api: Api, job: Workload) -> str:
    return f"projects/vision/jobs/{job.pk}"


def test_a_failed_task_is_kept_and_everybody_is_told_at_once(
    people: Personas, machine: Machine, bob: Api
) -> None:
    job = _running(bob)
    (task,) = json_of(machine.call("GET", "desired"))["tasks"]
    assert task["spec"]["keep_failed_s"] == 900
    with clock.frozen(clock.now()):
        fail(job)
        fail(job)  # a report that is repeated
        now = clock.now()
    out = json_of(bob.get(_page(bob, job)))
    until = now + timedelta(minutes=15)
    workload = out["workload"]
    assert abs(job.kept_until - until) < timedelta(seconds=1)  # type: ignore[operator]
    assert (workload["state"], workload["reason"], workload["exit_code"]) == ("running", "exit", 1)
    assert out["keep_failed_minutes"] == 15
    assert workload["explanation"] == (
        f"Failed: {MESSAGE}. Kept until {job.kept_until:%H:%M} UTC (costs $3.60 per hour). Open a "
        f"shell with `slipway job shell {job.pk}`; end it now with `slipway job cancel {job.pk}`."
    )
    assert workload["next_step"] == NEXT_STEPS[ReasonCode.EXIT]
    alice = json_of(Api.of(people.alice).get(_page(bob, job)))["workload"]["explanation"]
    assert "Bob can open a shell in it" in alice
    lease = Lease.objects.get(workload=job)
    assert (lease.state, lease.reason, lease.cpu_seconds) == ("running", "exit", 2.5)
    assert lease.ended_at is None
    (notification,) = json_of(bob.get("notifications"))["items"]
    assert notification["title"] == "The job train.py failed, and is kept"
    assert notification["waits_for_you"]
    kept = WorkloadEvent.objects.get(workload=job, kind="kept")
    assert kept.message.startswith(f"Failed: {MESSAGE}. Kept until")
    # It is silent, of course.
    with _minutes_later(14):
        find_silent()
        job.refresh_from_db()
        assert job.silent_since is None


def test_the_end_of_its_time_costs_and_fails(kept: Workload, bob: Api) -> None:
    with _minutes_later(15):
        end_kept(kept, "Its time is over.")
    assert (kept.state, kept.reason, kept.exit_code) == ("failed", "exit", 1)
    assert (kept.reason_text, kept.log_tail) == (MESSAGE, "ValueError: loss is NaN")
    out = json_of(bob.get(_page(bob, kept)))
    assert out["workload"]["kept_until"] is None
    assert out["workload"]["explanation"] == MESSAGE
    assert out["cost_nano_usd"] >= 900_000_000
    event = WorkloadEvent.objects.get(workload=kept, kind="task_ended")
    assert event.message == (
        "No longer kept: Its time is over. Keeping it for 15.0 min cost $0.90."
    )
    assert json_of(bob.get("notifications"))["items"] == []


@pytest.mark.parametrize(
    "order",
    [
        lambda job: stop_workload(workload=job, reason=ReasonCode.BUDGET, message="Over budget."),
        lambda job: stop_and_requeue(job, "Node lab is being drained."),
    ],
    ids=["budget", "drained node"],
)
def test_whatever_ends_it_early_leaves_it_failed(
    machine: Machine, kept: Workload, bob: Api, order: Any
) -> None:
    order(kept)
    kept.refresh_from_db()
    assert (kept.state, kept.plan) == ("stopping", StopOutcome.JUDGE)
    assert json_of(machine.call("GET", "desired"))["tasks"][0]["action"] == "stop"
    order(kept)
    kept.refresh_from_db()
    assert (kept.plan, kept.reason) == (StopOutcome.JUDGE, "exit")
    explanation = json_of(bob.get(_page(bob, kept)))["workload"]["explanation"]
    assert explanation == f"Failed: {MESSAGE}. It is kept no longer, and ends now."
    end_kept(kept, "Stopped on request.")
    assert (kept.state, kept.reason, kept.reason_text) == ("failed", "exit", MESSAGE)
    assert bob.post(f"{_page(bob, kept)}/resume", {}).status_code == 409


def test_a_person_ends_it_and_the_audit_log_says_so(
    people: Personas, kept: Workload, bob: Api
) -> None:
    shell = json_of(bob.post(f"{_page(bob, kept)}/shells", {}))
    assert shell["node"] == "lab"
    alice = Api.of(people.alice)
    assert refusal(alice.post(f"{_page(bob, kept)}/shells", {})).code == "not_the_submitter"
    assert Api.of(people.charlie).post(f"{_page(bob, kept)}/shells", {}).status_code == 404
    assert Api.of(people.charlie).post(f"{_page(bob, kept)}/cancel").status_code == 404
    for _ in range(2):
        assert alice.post(f"{_page(bob, kept)}/cancel").status_code == 200
    verbs = AuditEvent.objects.filter(target_id=kept.pk).order_by("pk")
    assert list(verbs.values_list("verb", flat=True)) == [
        *("workload.submit", "workload.open_shell", "workload.end_kept")
    ]
    end_kept(kept, "Stopped on request.")
    assert kept.state == "failed"


def test_a_lost_node_or_supervisor_does_not_change_the_verdict(
    machine: Machine, bob: Api, kept: Workload
) -> None:
    other = _running(bob)
    fail(other)
    # Its agent finds that the shim is gone.
    end_kept(
        other, "", reason="signal", message="The task's supervisor was killed.", exit_code=None
    )
    assert (other.state, other.reason, other.exit_code) == ("failed", "exit", 1)
    event = WorkloadEvent.objects.get(workload=other, kind="task_ended")
    assert event.message.startswith("No longer kept: The task's supervisor was killed.")
    with _minutes_later(5):
        reconcile()
        kept.refresh_from_db()
    assert (kept.state, kept.reason, kept.reason_text) == ("failed", "exit", MESSAGE)


def test_the_portal_ends_what_its_node_does_not_end(machine: Machine, kept: Workload) -> None:
    for minutes, state in ((15.1, "running"), (16, "stopping")):
        with _minutes_later(minutes):
            machine.running = {(leases_of(kept)[0].task_id, 1)}
            machine.beat()
            reconcile()
        kept.refresh_from_db()
        assert kept.state == state
    assert WorkloadEvent.objects.filter(kind="stopping").get().message == (
        "The time for which it is kept is over."
    )


def test_a_failure_that_is_tried_again_is_not_kept(machine: Machine, bob: Api) -> None:
    job = _running(bob, max_attempts=2)
    fail(job, reason="signal", message="Rank 0 was killed by SIGSEGV.", exit_code=None)
    assert (job.state, job.kept_until) == ("stopping", None)
    end_kept(job, "Stopped on request.", reason="signal", message="Rank 0 was killed by SIGSEGV.")
    assert (job.state, job.failures) == ("queued", 1)
    run_passes()
    run(job)
    fail(job, reason="signal", message="Rank 0 was killed by SIGSEGV.", exit_code=None)
    assert job.is_kept
    end_kept(job, "Its time is over.")
    assert (job.state, job.reason, job.failures) == ("failed", "signal", 2)


def test_a_task_that_is_being_stopped_is_not_kept(machine: Machine, bob: Api) -> None:
    job = _running(bob)
    bob.post(f"{_page(bob, job)}/cancel")
    fail(job)
    assert (job.state, job.kept_until) == ("stopping", None)
    end_kept(job, "Stopped on request.")
    assert (job.state, job.reason) == ("stopped", "user")
    plain = _running(bob, keep_failed_minutes=0)
    fail(plain)
    assert (plain.state, plain.kept_until) == ("running", None)


def test_what_cannot_be_kept_is_refused_with_the_reason(
    settings: Settings, machine: Machine, bob: Api
) -> None:
    take_code(bob)

    def refused(**changes: Any) -> str:
        answer = refusal(submit(bob, **{"keep_failed_minutes": 15, **changes}))
        assert (answer.status, answer.field, answer.code) == (
            422,
            "keep_failed_minutes",
            "not_kept",
        )
        return answer.detail

    assert "at most 60 minutes here" in refused(keep_failed_minutes=61)
    settings.SLIPWAY_HAS_RELAY = False
    assert "no relay" in refused()
    settings.SLIPWAY_HAS_RELAY = True
    settings.SLIPWAY_KEEP_FAILED_MAX_MINUTES = 0
    assert "keeps no failed tasks" in refused()
    assert submit(bob, keep_failed_minutes=-1).status_code == 422


def test_clones_keep_it_and_work_that_goes_on_by_itself_does_not(
    machine: Machine, bob: Api
) -> None:
    job = made_job(bob, keep_failed_minutes=15)["workload"]["id"]
    clones = f"projects/vision/jobs/{job}/clone"
    assert json_of(bob.post(clones, {}))["keep_failed_minutes"] == 15
    assert json_of(bob.post(clones, {"keep_failed_minutes": 0}))["keep_failed_minutes"] == 0
    step = {"name": "train", "script": "train.py", "tier": "small", "keep_failed_minutes": 15}
    snapshot = Workload.objects.get(pk=job).snapshot
    pipeline = {"name": "nightly", "snapshot": snapshot, "steps": [step]}
    assert bob.post("projects/vision/pipelines/runs", pipeline).status_code == 422
    nightly = {"name": "nightly", "cron": "0 3 * * *", "job": job}
    made = bob.post("projects/vision/schedules", nightly)
    assert made.status_code == 201, made.content
    assert ProjectSchedule.objects.get().request["keep_failed_minutes"] == 0
