"""Registers jobs as a kind of workload, with its environment and what it reports."""

import json
from collections import Counter
from collections.abc import Mapping

from django.db.models import Sum

from portal.accounts.models import Project
from portal.accounts.noted import NotedKind, register_noted
from portal.experiments.services.job_runs import variables_of
from portal.storage.usage import exclude_from_files, register_stored
from portal.training.models import Checkpoint, Job
from portal.training.presentation import PRESENTATION
from portal.training.services.checkpoint_copies import (
    limit_bytes,
    newest_copy,
    record_resume_step,
    saved_at,
)
from portal.training.services.reports import accept_report
from portal.workloads.ports import CheckpointCopies, Grouping, Kind, register_kind
from portal.workloads.retries import RetryRule
from portal.workloads.signals import WorkloadChanged, workload_changed
from slipway.schemas.workloads import ReasonCode, WorkloadState


def _surroundings(*, workload_id: str, index: int) -> Mapping[str, str]:
    jobs = Job.objects.select_related("workload__submitted_by", "workload__tier", "snapshot").defer(
        "snapshot__marks"
    )
    job = jobs.filter(pk=workload_id).first()
    if job is None:
        return {}
    values = {"SLIPWAY_PARAMS": json.dumps(job.params)} if job.params else {}
    if job.strategy:
        values["SLIPWAY_STRATEGY"] = job.strategy
    if job.datasets:
        values["SLIPWAY_DATASETS"] = ",".join(job.datasets)
    values |= job.variables or {}
    return values | variables_of(
        job.workload, source=job.script, tags=_code_of(job), params=job.params
    )


def _code_of(job: Job) -> dict[str, str]:
    """Return the tags by which MLflow and people know what code a run ran."""
    git = job.git or {}
    return {
        "mlflow.source.git.commit": str(git.get("commit") or ""),
        "mlflow.source.git.branch": str(git.get("branch") or ""),
        "slipway.snapshot": job.snapshot.digest,
        "slipway.strategy": job.strategy,
    }


JOB = Kind(
    name="job",
    noun="job",
    retry=RetryRule(max_attempts=3),
    moves_when_drained=True,
    can_be_preempted=True,
    stop_grace_s=30.0,
    warm="torch",
    environment=_surroundings,
    handle_report=accept_report,
    copies=CheckpointCopies(limit_bytes=limit_bytes, newest=newest_copy, saved_at=saved_at),
    # Jobs of a name log to the experiment of that name; see `variables_of`.
    grouping=Grouping(noun="experiment"),
    presentation=PRESENTATION,
    has_run=True,
    reports_silence=True,
    has_shells=True,
)
register_kind(JOB)


def _checkpoints() -> Mapping[str, int]:
    """Count the bytes of the checkpoints of each project: on nodes, and copied to the store."""
    counter: Counter[str] = Counter()
    checkpoints = Checkpoint.objects.order_by()
    on_nodes = checkpoints.filter(is_on_node=True).values_list("job__workload__project")
    copied = checkpoints.copied().values_list("job__workload__project")
    for project, size in on_nodes.annotate(all=Sum("size_bytes")):
        counter[project] += int(size)
    for project, size in copied.annotate(all=Sum("file__blob__size_bytes")):
        counter[project] += int(size or 0)
    return counter


def _noted_job(project: Project, path: str) -> tuple[str, str] | None:
    jobs = Job.objects.filter(workload__project=project, pk=path)
    return jobs.values_list("pk", "workload__name").first()


def _on_requeued(news: WorkloadChanged) -> None:
    is_lost = news.state == WorkloadState.QUEUED and news.reason == ReasonCode.NODE_LOST
    if is_lost and news.kind == JOB.name:
        record_resume_step(workload_id=news.workload_id)


register_stored("checkpoints", _checkpoints)
exclude_from_files(lambda: Checkpoint.objects.order_by().copied().values("file"))
workload_changed.connect(_on_requeued)
register_noted(NotedKind("job", "job", "project_job", "jobs", _noted_job))
