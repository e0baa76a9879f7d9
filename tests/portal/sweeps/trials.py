"""Sweeps and the ends of their trials, for tests."""

from collections.abc import Callable, Mapping
from typing import Any

from portal.experiments.models import Run
from portal.experiments.services.job_runs import run_id_of
from portal.sweeps.services.progress import advance_all
from portal.workloads.models import Workload
from portal.workloads.scheduling import run_passes
from portal.workloads.services.desired import desired_for
from tests.personas import Api, json_of
from tests.portal.experiments.world import log_curve
from tests.portal.training.jobs import CODE, digest_of, take_code, tar_of
from tests.portal.workloads.machines import Machine, finish, run

LR = {"type": "float", "low": 1e-4, "high": 1e-1, "log": True}
LAYERS = {"type": "choice", "choices": ["2", "4", "8"]}
SWEEPS = "projects/vision/sweeps"
Metrics = Mapping[str, float]


def sweep_body(**changes: Any) -> dict[str, Any]:
    """Return the usual sweep of the usual script, with changes."""
    job = {"script": "train.py", "tier": "small", "snapshot": digest_of(tar_of(CODE))}
    return {
        "name": "digits",
        "job": job | changes.pop("job", {}),
        "parameters": {"lr": LR, "layers": LAYERS},
        "metric": {"name": "accuracy", "goal": "max"},
        "algorithm": "random",
        "trials": 4,
        "parallel": 2,
    } | changes


def start_sweep(api: Api, **changes: Any) -> str:
    """Upload the usual code and start a sweep that must be accepted. Returns its id."""
    take_code(api)
    answer = api.post(SWEEPS, sweep_body(**changes))
    assert answer.status_code == 201, answer.content
    sweep_id: str = json_of(answer)["id"]
    return sweep_id


def shown(api: Api, sweep_id: str) -> dict[str, Any]:
    """Return the sweep as the API shows it."""
    sweep: dict[str, Any] = json_of(api.get(f"{SWEEPS}/{sweep_id}"))
    return sweep


def trials_of(api: Api, sweep_id: str) -> list[dict[str, Any]]:
    """Return the trials in the order of their numbers."""
    page = json_of(api.get(f"{SWEEPS}/{sweep_id}/trials?limit=200"))
    return list(reversed(page["items"]))


def advance() -> None:
    """Let control do what is due, then the scheduler."""
    advance_all()
    run_passes()


def end_trials(
    api: Api,
    sweep_id: str,
    machine: Machine,
    metrics: Callable[[dict[str, Any]], Metrics],
    reason: str = "completed",
) -> int:
    """Let the running trials log `metrics` of their parameters and end. Returns their number."""
    running = [trial for trial in trials_of(api, sweep_id) if trial["state"] == "running"]
    for trial in running:
        workload = Workload.objects.get(pk=trial["job"])
        desired_for(node=machine.node)  # makes the run
        run(workload)
        tracked = Run.objects.get(pk=run_id_of(workload.pk))
        for key, value in metrics(trial["parameters"]).items():
            log_curve(tracked, key, [value])
        finish(workload, reason, exit_code=0 if reason == "completed" else 1)
    return len(running)
