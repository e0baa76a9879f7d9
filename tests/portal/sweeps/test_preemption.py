"""Trials that are moved for other work: they go on, and no sweep counts them as failed."""

import pytest

from portal.workloads.models import Workload
from portal.workloads.tasks import schedule
from tests.personas import Api, Personas, json_of
from tests.portal.sweeps.trials import SWEEPS, advance, end_trials, shown, start_sweep, trials_of
from tests.portal.workloads.machines import Machine, finish, make_tier, run, states_of
from tests.portal.workloads.machines import submit as submit_workload

pytestmark = pytest.mark.postgres


def moved_sweep(bob: Api, people: Personas) -> tuple[str, list[Workload], Workload]:
    """Start a preemptible sweep of which one trial is moved. Returns it, its jobs and the cause."""
    sweep_id = start_sweep(bob, job={"preemptible": True}, trials=2)
    advance()
    jobs = [Workload.objects.get(pk=trial["job"]) for trial in trials_of(bob, sweep_id)]
    for job in jobs:
        run(job)
    urgent = submit_workload(people.other, people.charlie, make_tier("most", cpus=3))
    schedule()
    assert sorted(states_of(*jobs)) == ["running", "stopping"]
    return sweep_id, jobs, urgent


def test_a_moved_trial_goes_on_and_counts_once(
    bob: Api, machine: Machine, people: Personas
) -> None:
    sweep_id, jobs, urgent = moved_sweep(bob, people)
    (moved,) = [job for job in jobs if job.state == "stopping"]
    finish(moved, "exit", exit_code=143)
    advance()
    assert [trial["state"] for trial in trials_of(bob, sweep_id)] == ["running", "running"]
    run(urgent)
    finish(urgent)
    advance()
    assert end_trials(bob, sweep_id, machine, lambda parameters: {"accuracy": 0.5}) == 2
    advance()
    sweep = shown(bob, sweep_id)
    assert (sweep["state"], sweep["complete"], sweep["failed"]) == ("finished", 2, 0)
    moved.refresh_from_db()
    assert (moved.epoch, moved.preemptions, moved.failures) == (2, 1, 0)


def test_a_sweep_with_a_moved_trial_is_paused_resumed_and_stopped(
    bob: Api, machine: Machine, people: Personas
) -> None:
    sweep_id, jobs, _ = moved_sweep(bob, people)
    (moved,) = [job for job in jobs if job.state == "stopping"]
    assert bob.post(f"{SWEEPS}/{sweep_id}/pause").status_code == 200
    finish(moved, "preempted")
    advance()
    assert json_of(bob.post(f"{SWEEPS}/{sweep_id}/resume"))["state"] == "running"
    assert json_of(bob.post(f"{SWEEPS}/{sweep_id}/stop"))["state"] == "stopped"
    advance()
    moved.refresh_from_db()
    assert moved.state == "stopped"


def test_the_quote_of_a_sweep_counts_the_discount(bob: Api, machine: Machine) -> None:
    sweep_id = start_sweep(bob, job={"preemptible": True})
    assert shown(bob, sweep_id)["state"] == "running"
    jobs = json_of(bob.get("projects/vision/jobs"))["items"]
    advance()
    jobs = json_of(bob.get("projects/vision/jobs"))["items"]
    assert {job["nano_usd_per_hour"] for job in jobs} == {1_800_000_000}
