"""The control worker is killed before and after each commit: nothing is lost or done twice."""

import json
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from pytest_django import Settings

from portal.pipelines.services import pipeline_progress
from portal.sweeps.models import Sweep
from portal.sweeps.services import progress
from portal.training.models import Job
from portal.workloads.models import Workload
from portal.workloads.scheduling import run_passes
from tests.commit_kills import kill_at_every_commit
from tests.personas import Api
from tests.portal.pipelines.pipeline_runs import (
    RUNS,
    body_of,
    shown,
    states_of,
    step,
    steps_of,
)
from tests.portal.pipelines.sweep_steps import by_lr, sweep_step
from tests.portal.sweeps.trials import end_trials, start_sweep, trials_of
from tests.portal.sweeps.trials import shown as shown_sweep
from tests.portal.workloads.machines import Machine, finish, run

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.thorough,
    pytest.mark.django_db(transaction=True, databases=["default", "tracking"]),
    pytest.mark.skipif(connection.vendor != "postgresql", reason="a fork needs a server"),
]


@pytest.fixture(autouse=True)
def _artifacts(settings: Settings, tmp_path: Path) -> None:
    settings.SLIPWAY_ARTIFACTS_URL = f"file://{tmp_path / 'artifacts'}"


def _advance_everything() -> None:
    progress.advance_all()
    pipeline_progress.advance_all()


def _accuracy(trial: dict[str, Any]) -> dict[str, float]:
    return {"accuracy": float(trial["lr"])}


@pytest.mark.parametrize("algorithm", ["random", "tpe"])
def test_a_sweep_starts_each_trial_once(bob: Api, machine: Machine, algorithm: str) -> None:
    sweep_id = start_sweep(bob, trials=5, parallel=2, algorithm=algorithm, seed=3)
    kills = kill_at_every_commit(progress.advance_all)
    while shown_sweep(bob, sweep_id)["state"] == "running":
        run_passes()
        machine.beat()
        assert end_trials(bob, sweep_id, machine, _accuracy)
        kills += kill_at_every_commit(progress.advance_all)
    assert kills >= 10  # a start and an end of each trial at least
    trials = trials_of(bob, sweep_id)
    assert [trial["number"] for trial in trials] == list(range(5))
    assert {trial["state"] for trial in trials} == {"complete"}
    assert Job.objects.count() == 5
    assert len({str(trial["parameters"]) for trial in trials}) == 5


def test_a_pipeline_starts_each_step_once(bob: Api, machine: Machine) -> None:
    steps = [
        step("split"),
        step("part", foreach=["a", "b"], inputs={"x": "${item}"}, after=["split"]),
        sweep_step(after=["part"], trials=2, parallel=2),
        step("last", after=["tune"]),
    ]
    run_id = json.loads(bob.post(RUNS, body_of(bob, steps)).content)["id"]
    kills = kill_at_every_commit(_advance_everything)
    while shown(bob, run_id)["state"] == "running":
        run_passes()
        machine.beat()
        if Sweep.objects.filter(state="running").exists():
            end_trials(bob, steps_of(bob, run_id)["tune"]["sweep"], machine, by_lr)
        else:
            for workload in Workload.objects.filter(state="placed"):
                run(workload)
                finish(workload, "completed", exit_code=0)
        kills += kill_at_every_commit(_advance_everything)
    assert kills >= 12
    assert set(states_of(bob, run_id).values()) == {"succeeded"}
    assert shown(bob, run_id)["state"] == "succeeded"
    assert Job.objects.count() == 6  # split, two parts, two trials, last
    assert Sweep.objects.count() == 1
    assert {row["attempt"] for row in shown(bob, run_id)["steps"]} <= {0, 1}
