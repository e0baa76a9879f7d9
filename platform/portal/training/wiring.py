"""Makes jobs a kind of workload, with its environment and what it reports."""

import json
from collections.abc import Mapping

from django.db.models import Sum

from portal.experiments.services.job_runs import variables_of
from portal.storage.usage import register_stored
from portal.training.models import Checkpoint, Job
from portal.training.services.keeping import keep_report
from portal.workloads.ports import Grouping, Kind, register_kind
from portal.workloads.retries import RetryRule


def _surroundings(*, workload_id: str, index: int) -> Mapping[str, str]:
    jobs = Job.objects.select_related("workload__submitted_by", "workload__tier", "snapshot").defer(
        "snapshot__marks"
    )
    job = jobs.filter(pk=workload_id).first()
    if job is None:
        return {}
    found = {"SLIPWAY_PARAMS": json.dumps(job.params)} if job.params else {}
    if job.strategy:
        found["SLIPWAY_STRATEGY"] = job.strategy
    if job.datasets:
        found["SLIPWAY_DATASETS"] = ",".join(job.datasets)
    return found | variables_of(job.workload, source=job.script, tags=_code_of(job))


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
    stop_grace_s=30.0,
    warm="torch",
    surroundings=_surroundings,
    keep_report=keep_report,
    # Jobs of a name log to the experiment of that name; see `variables_of`.
    grouping=Grouping(noun="experiment"),
)
register_kind(JOB)


def _checkpoints() -> Mapping[str, int]:
    """Count the bytes of the checkpoints of each project."""
    sums = Checkpoint.objects.order_by().values_list("job__workload__project")
    return {project: int(size) for project, size in sums.annotate(all=Sum("size_bytes"))}


register_stored("checkpoints", _checkpoints)
