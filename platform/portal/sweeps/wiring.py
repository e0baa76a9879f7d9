"""Advances a sweep as soon as a job of it ends, and retains checkpoints it may resume from."""

from typing import Any

from django.db.models import QuerySet

from portal.accounts.models import Project
from portal.accounts.noted import NotedKind, register_noted
from portal.core.enqueue import enqueue_now, enqueue_on_commit
from portal.sweeps.models import Sweep, Trial
from portal.sweeps.services.kept_trials import obstacle_to_keeping
from portal.sweeps.tasks import advance
from portal.training.services.checkpoint_copies import retain_copies
from portal.training.wiring import JOB
from portal.workloads.lifecycle import ENDS
from portal.workloads.ports import register_keep_rule
from portal.workloads.signals import WorkloadChanged, workload_changed
from slipway.schemas.sweeps import SweepState, TrialState


def _on_job_ended(news: WorkloadChanged) -> None:
    if news.kind != JOB.name or news.state not in ENDS:
        return
    trial = Trial.objects.filter(job=news.workload_id).only("sweep_id").first()
    if trial is not None:
        enqueue_now(advance, trial.sweep_id)


def _keep_rule(workload_id: str) -> str:
    obstacle = obstacle_to_keeping(workload_id)
    sweep_id = None
    if not obstacle:
        sweep_id = Trial.objects.filter(job=workload_id).values_list("sweep_id", flat=True).first()
    if sweep_id is not None:
        enqueue_on_commit(advance, sweep_id)  # the trial that is kept has failed
    return obstacle


def _noted_sweep(project: Project, path: str) -> tuple[str, str] | None:
    return Sweep.objects.of_project(project).filter(pk=path).values_list("pk", "name").first()


def _may_be_resumed() -> QuerySet[Any, Any]:
    """Return the ids of jobs that early stopping has stopped and may resume."""
    trials = Trial.objects.filter(
        state__in=[TrialState.RUNNING, TrialState.PRUNED],
        sweep__state__in=[SweepState.RUNNING, SweepState.PAUSED],
        sweep__scheduler__in=["asha", "hyperband"],
    )
    return trials.order_by().values("job")


workload_changed.connect(_on_job_ended)
retain_copies(_may_be_resumed)
register_keep_rule(_keep_rule)
register_noted(NotedKind("sweep", "sweep", "project_sweep", "sweeps", _noted_sweep))
