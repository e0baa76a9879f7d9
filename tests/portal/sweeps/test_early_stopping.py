"""Early stopping through rows and logged values: who is stopped, who runs again, what it saves."""

from collections.abc import Sequence
from typing import Any

import pytest

from portal.experiments.factories import tracker
from portal.experiments.models import LatestMetric, Metric, Run
from portal.experiments.services.job_runs import run_id_of
from portal.sweeps.models import Trial, TrialRung
from portal.sweeps.services.early_stops import stop_early_everywhere
from portal.training.models import Checkpoint
from portal.training.services.checkpoint_copies import delete_unneeded
from portal.workloads.models import Workload
from portal.workloads.services.desired import desired_for
from tests.checkpoints import make_packed
from tests.personas import Api, Personas, json_of
from tests.portal.sweeps.trials import SWEEPS, advance, shown, start_sweep, sweep_body, trials_of
from tests.portal.web.conftest import Browse
from tests.portal.web.reading import text_of
from tests.portal.workloads.machines import Machine, finish, leases_of, run

ASHA: dict[str, Any] = {"scheduler": "asha", "min_values": 2, "eta": 2, "parallel": 1}


def _workload(number: int) -> Workload:
    return Workload.objects.get(pk=Trial.objects.get(number=number).job_id)


def _log(number: int, machine: Machine, values: Sequence[float]) -> None:
    """Let a trial run, and let its run have these values of the metric, one a step."""
    workload = _workload(number)
    if workload.state != "running":
        desired_for(node=machine.node)  # makes the run
        run(workload)
    tracked = Run.objects.get(pk=run_id_of(workload.pk))
    for step, value in enumerate(values):
        at = {"run": tracked, "key": "accuracy", "step": step}
        if not Metric.objects.filter(**at).exists():
            Metric.objects.create(**at, timestamp=step, value=value, is_nan=False)
    point = {"step": len(values) - 1, "timestamp": 0, "value": values[-1], "is_nan": False}
    LatestMetric.objects.update_or_create(run=tracked, key="accuracy", defaults=point)


def _stop(number: int) -> None:
    """Let the node report that the job of a trial has stopped as it was told to."""
    workload = _workload(number)
    assert (workload.state, workload.reason) == ("stopping", "early_stop")
    finish(workload, "early_stop", exit_code=143)
    advance()


def _end(number: int) -> None:
    finish(_workload(number), "completed", exit_code=0)
    advance()


@pytest.mark.postgres
def test_a_worse_trial_is_stopped_with_the_reason_and_its_slot_goes_to_the_next(
    bob: Api, machine: Machine, people: Personas, browse: Browse
) -> None:
    sweep_id = start_sweep(bob, trials=3, **ASHA)
    advance()
    _log(0, machine, [0.1, 0.8])
    assert stop_early_everywhere() == 1
    assert _workload(0).state == "running"  # the first of all goes on
    _log(0, machine, [0.1, 0.8, 0.9])
    _end(0)
    _log(1, machine, [0.2])
    stop_early_everywhere()
    assert _workload(1).state == "running"  # one value is too few
    _log(1, machine, [0.2, 0.5])
    stop_early_everywhere()
    stop_early_everywhere()  # once more changes nothing
    _stop(1)
    trials = trials_of(bob, sweep_id)
    assert [trial["state"] for trial in trials] == ["complete", "pruned", "running"]
    assert trials[1]["value"] == 0.5
    reason = "accuracy after 2 values, 0.5, is not the best of 2 trials."
    assert reason in trials[1]["explanation"]
    job = json_of(bob.get(f"projects/vision/jobs/{trials[1]['job']}"))
    assert reason in job["workload"]["explanation"]
    page = text_of(browse(people.vera).get(f"/p/vision/sweeps/{sweep_id}"))
    assert "Stopped early 1" in page
    assert "Saved by early stopping" in page
    assert TrialRung.objects.count() == 2
    sweep = shown(bob, sweep_id)
    assert (sweep["pruned"], sweep["best"]["value"]) == (1, 0.9)
    assert sweep["saved_nano_usd"] is not None


@pytest.mark.postgres
def test_a_stopped_trial_that_is_among_the_best_resumes_from_its_checkpoint(
    bob: Api, machine: Machine
) -> None:
    sweep_id = start_sweep(bob, trials=4, **ASHA)
    advance()
    for number, value in enumerate([0.9, 0.8, 0.1, 0.2]):
        _log(number, machine, [0.0, value])
        stop_early_everywhere()
        if number == 0:
            _end(number)
        else:
            _stop(number)
    # Two of four go on: the best had, and now the second does, before the sweep ends.
    trials = trials_of(bob, sweep_id)
    assert [trial["state"] for trial in trials] == ["complete", "running", "pruned", "pruned"]
    job = trials[1]["job"]
    workload = Workload.objects.get(pk=job)
    assert workload.epoch == 2  # the same job, whose checkpoints are its own
    assert Trial.objects.get(number=1).attempt == 1
    events = json_of(bob.get(f"projects/vision/jobs/{job}/events"))["items"]
    assert any("now among the best after 2 values" in event["message"] for event in events)
    _log(1, machine, [0.0, 0.8, 0.85, 0.95])
    stop_early_everywhere()
    assert _workload(1).state == "running"  # the first at the next comparison
    _end(1)
    sweep = shown(bob, sweep_id)
    assert (sweep["state"], sweep["complete"], sweep["pruned"]) == ("finished", 2, 2)
    assert sweep["best"]["number"] == 1
    assert Workload.objects.count() == 4


def test_a_stopped_trial_keeps_its_checkpoint_while_the_sweep_is_open(
    bob: Api, machine: Machine
) -> None:
    sweep_id = start_sweep(bob, trials=3, **ASHA)
    advance()
    _log(0, machine, [0.1, 0.8])
    _end(0)
    _log(1, machine, [0.2, 0.5])
    lease = leases_of(_workload(1))[0]
    place = f"checkpoints/{lease.task_id}/{lease.epoch}/10"
    octets = "application/octet-stream"
    assert machine.call("PUT", place, make_packed(10), content_type=octets).status_code == 204
    stop_early_everywhere()
    _stop(1)
    copied = Checkpoint.objects.copied().filter(job=Trial.objects.get(number=1).job_id)
    delete_unneeded()
    assert copied.exists()
    bob.post(f"{SWEEPS}/{sweep_id}/stop")
    delete_unneeded()
    assert not copied.exists()


def test_a_trial_whose_metric_is_infinite_is_stopped_for_good(bob: Api, machine: Machine) -> None:
    sweep_id = start_sweep(bob, trials=1, **ASHA)
    advance()
    _log(0, machine, [0.1, 1.7976931348623157e308])
    stop_early_everywhere()
    _stop(0)
    (trial,) = trials_of(bob, sweep_id)
    assert (trial["state"], trial["value"]) == ("pruned", None)
    assert "accuracy is not finite after 2 values" in trial["explanation"]
    assert shown(bob, sweep_id)["state"] == "finished"


def test_values_without_steps_count_in_time_and_steps_logged_again_count_once(
    bob: Api, machine: Machine
) -> None:
    start_sweep(bob, trials=1, **ASHA)
    advance()
    _log(0, machine, [0.1])
    workload = _workload(0)
    tracked = Run.objects.get(pk=run_id_of(workload.pk))
    Metric.objects.create(run=tracked, key="accuracy", step=0, timestamp=9, value=0.2, is_nan=False)
    values = tracker().first_values
    assert values(workload.project_id, tracked.pk, "accuracy", count=5) == [0.1, 0.2]
    Metric.objects.create(run=tracked, key="accuracy", step=1, timestamp=9, value=0.3, is_nan=False)
    assert values(workload.project_id, tracked.pk, "accuracy", count=5) == [0.2, 0.3]
    assert values(workload.project_id, tracked.pk, "accuracy", count=1) == [0.2]
    assert values("another", tracked.pk, "accuracy", count=1) == []


@pytest.mark.parametrize("scheduler", ["median", "hyperband"])
def test_other_schedulers_stop_trials_too(bob: Api, machine: Machine, scheduler: str) -> None:
    sweep_id = start_sweep(bob, trials=4, **(ASHA | {"scheduler": scheduler}))
    advance()
    for number, value in enumerate([0.9, 0.8, 0.7]):
        _log(number, machine, [0.0, value])
        stop_early_everywhere()
        _end(number) if _workload(number).state == "running" else _stop(number)
    _log(3, machine, [0.0, 0.1])
    stop_early_everywhere()
    _stop(3)
    assert trials_of(bob, sweep_id)[3]["state"] == "pruned"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"scheduler": "pbt"}, "scheduler"),
        ({"scheduler": "asha", "eta": 1}, "eta"),
        ({"scheduler": "asha", "min_values": 0}, "min_values"),
    ],
)
def test_settings_that_make_no_sense_are_refused(
    bob: Api, machine: Machine, changes: dict[str, Any], field: str
) -> None:
    answer = bob.post(SWEEPS, sweep_body(**changes))
    assert answer.status_code == 422
    problem = json_of(answer)
    assert field in str(problem.get("errors") or problem["field"])
