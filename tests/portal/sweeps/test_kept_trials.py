"""Failed trials that are kept for shells: one at a time, while the sweep goes on."""

from typing import Any

import pytest
from django.test import Client

from portal.workloads.models import Workload, WorkloadEvent
from tests.personas import Api, Personas, json_of
from tests.portal.sweeps.trials import SWEEPS, advance, shown, start_sweep, sweep_body, trials_of
from tests.portal.workloads.machines import Machine, leases_of, run, send_report
from tests.security.problems import refusal

pytestmark = pytest.mark.postgres

_FAILURE: dict[str, Any] = {
    "reason": "exit",
    "message": "Rank 0 exited with status 1: ValueError: loss is NaN",
    "exit_code": 1,
}


def _jobs(bob: Api, sweep_id: str) -> list[Workload]:
    """Return the jobs of the running trials, which run."""
    running = [trial for trial in trials_of(bob, sweep_id) if trial["state"] == "running"]
    jobs = [Workload.objects.get(pk=trial["job"]) for trial in running]
    for job in jobs:
        run(job)
    return jobs


def _report(job: Workload, kind: str, sequence: int, **fields: Any) -> None:
    (lease,) = leases_of(job)
    send_report(lease, kind, sequence, **_FAILURE, **fields)
    job.refresh_from_db()


def _states(bob: Api, sweep_id: str) -> list[str]:
    return [trial["state"] for trial in trials_of(bob, sweep_id)]


def _kept_sweep(bob: Api, **changes: Any) -> tuple[str, list[Workload]]:
    body = {"job": {"keep_failed_minutes": 15}, "trials": 4, "parallel": 2}
    sweep_id = start_sweep(bob, **body | changes)
    advance()
    return sweep_id, _jobs(bob, sweep_id)


def test_one_failed_trial_is_kept_and_the_sweep_goes_on(
    people: Personas, bob: Api, machine: Machine
) -> None:
    sweep_id, (first, second) = _kept_sweep(bob)
    _report(first, "failed", 3)
    assert first.is_kept
    advance()
    # Its place is taken by the next one.
    assert _states(bob, sweep_id) == ["failed", "running", "running"]
    assert json_of(bob.post(f"projects/vision/jobs/{first.pk}/shells", {}))["node"] == "lab"
    client = Client()
    client.force_login(people.bob)
    page = client.get(f"/p/vision/sweeps/{sweep_id}").content.decode()
    assert "Trial 0 failed: Rank 0 exited with status 1" in page
    assert f"/jobs/{first.pk}" in page
    _report(second, "failed", 3)
    assert (second.state, second.is_kept) == ("stopping", False)
    event = WorkloadEvent.objects.filter(workload=second, kind="stopping").get()
    assert "another failed trial of its sweep is kept" in event.message
    _report(second, "ended", 4)
    assert (second.state, second.reason) == ("failed", "exit")
    # Once the first one has ended, the next failure is kept.
    _report(first, "ended", 4, kept_end="Its time is over.")
    assert first.state == "failed"
    advance()
    third, *_ = _jobs(bob, sweep_id)
    _report(third, "failed", 3)
    assert third.is_kept
    page = client.get(f"/p/vision/sweeps/{sweep_id}").content.decode()
    assert "Trial 2 failed: Rank 0" in page


def test_a_sweep_that_fails_leaves_its_kept_trial_and_one_that_is_stopped_does_not(
    bob: Api, machine: Machine
) -> None:
    sweep_id, jobs = _kept_sweep(bob, parallel=3)
    for job in jobs:
        _report(job, "failed", 3)
        if not job.is_kept:
            _report(job, "ended", 4)
    advance()
    assert shown(bob, sweep_id)["state"] == "failed"
    jobs[0].refresh_from_db()
    assert (jobs[0].state, jobs[0].is_kept) == ("running", True)
    _report(jobs[0], "ended", 4, kept_end="Its time is over.")
    sweep_id, (first, _) = _kept_sweep(bob)
    _report(first, "failed", 3)
    assert bob.post(f"{SWEEPS}/{sweep_id}/stop").status_code == 200
    advance()
    first.refresh_from_db()
    assert first.state == "stopping"
    _report(first, "ended", 4, kept_end="Stopped on request.")
    assert (first.state, first.reason) == ("failed", "exit")


def test_a_trial_that_is_tried_again_is_not_kept(bob: Api, machine: Machine) -> None:
    sweep_id, (first, _) = _kept_sweep(bob, retries=1)
    _report(first, "failed", 3)
    assert (first.state, first.is_kept) == ("stopping", False)
    _report(first, "ended", 4)
    advance()
    assert _states(bob, sweep_id) == ["running", "running"]
    again = next(job for job in _jobs(bob, sweep_id) if job.pk > first.pk and job.epoch == 1)
    trial = next(it for it in trials_of(bob, sweep_id) if it["number"] == 0)
    again = Workload.objects.get(pk=trial["job"])
    _report(again, "failed", 3)
    assert again.is_kept


def test_repeats_and_schedules_of_a_sweep_keep_nothing(bob: Api, machine: Machine) -> None:
    sweep_id, _ = _kept_sweep(bob)
    nightly = {"name": "nightly", "cron": "0 3 * * *", "sweep": sweep_id}
    assert bob.post("projects/vision/schedules", nightly).status_code == 201
    too_long = sweep_body(job={"keep_failed_minutes": 61})
    assert refusal(bob.post(SWEEPS, too_long)).code == "not_kept"
