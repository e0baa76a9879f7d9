"""Sweeps of steps and the ends of their trials, for tests."""

from collections.abc import Callable, Mapping
from typing import Any

from portal.sweeps.services.progress import advance_all as advance_sweeps
from tests.personas import Api
from tests.portal.pipelines.pipeline_runs import advance, steps_of
from tests.portal.sweeps.trials import end_trials
from tests.portal.workloads.machines import Machine


def sweep_step(**fields: Any) -> dict[str, Any]:
    """Return a step that is a sweep."""
    return {
        "name": "tune",
        "kind": "sweep",
        "script": "train.py",
        "tier": "small",
        "parameters": {"lr": "uniform(0,1)"},
        "metric": "accuracy:max",
        "algorithm": "random",
        "trials": 3,
        "parallel": 3,
    } | fields


def by_lr(trial: dict[str, Any]) -> Mapping[str, float]:
    """Return the metrics of a trial whose accuracy is its parameter."""
    return {"accuracy": float(trial["lr"])}


def sweep_of(api: Api, run_id: str) -> str:
    """Return the id of the newest sweep of the step."""
    sweep: str = steps_of(api, run_id)["tune"]["sweep"]
    return sweep


def finish_sweep(
    api: Api,
    machine: Machine,
    run_id: str,
    metrics: Callable[[dict[str, Any]], Mapping[str, float]] = by_lr,
    reason: str = "completed",
) -> None:
    """Let all trials of the step's sweep end. Then control does what is due."""
    sweep = sweep_of(api, run_id)
    machine.beat()  # the test may have taken long
    advance_sweeps()
    advance()
    while end_trials(api, sweep, machine, metrics, reason):
        advance_sweeps()
        advance()
