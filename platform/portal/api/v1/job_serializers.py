"""Serializers of jobs."""

from portal.api.v1.workload_serializers import workload_out
from portal.training.models import Checkpoint, Job, Snapshot
from portal.training.services.progress import progress_of
from portal.training.services.reports import files_of
from portal.workloads.costs import workload_price
from portal.workloads.explanations import Explainer
from portal.workloads.specs import RunSpec
from slipway.schemas.training import (
    CheckpointOut,
    GitFacts,
    JobOut,
    JobProgress,
    SnapshotOut,
)


def snapshot_out(snapshot: Snapshot) -> SnapshotOut:
    return SnapshotOut(
        digest=snapshot.digest, size_bytes=snapshot.file.blob.size_bytes, files=snapshot.files
    )


def checkpoint_out(checkpoint: Checkpoint) -> CheckpointOut:
    return CheckpointOut(
        step=checkpoint.step,
        size_bytes=checkpoint.size_bytes,
        attempt=checkpoint.attempt,
        created_at=checkpoint.created_at,
        copied_at=checkpoint.copied_at,
    )


def progress_out(job: Job, explainer: Explainer) -> JobProgress:
    """Serialize the progress of a job for the explainer's user."""
    progress = progress_of(job)
    return JobProgress(
        workload=workload_out(job.workload, explainer),
        cost_nano_usd=progress.cost_nano_usd,
        first_step_after_s=progress.first_step_after_s,
        step=progress.step,
        resumable_step=progress.resumable_step,
        log_ranks=progress.log_ranks,
    )


def job_out(job: Job, explainer: Explainer, *, with_files: bool = False) -> JobOut:
    """Serialize a job for the explainer's user."""
    spec = RunSpec.model_validate(job.workload.spec)
    return JobOut(
        **dict(progress_out(job, explainer)),
        script=job.script,
        args=job.args,
        params=job.params,
        strategy=job.strategy or None,
        strategy_reason=_strategy_reason(job),
        framework=spec.framework,
        backend=job.workload.backend,
        pool=job.workload.pool and job.workload.pool.name,
        snapshot=snapshot_out(job.snapshot),
        git=GitFacts.model_validate(job.git) if job.git else None,
        environment=job.workload.environment or None,
        environment_version=job.environment_version and job.environment_version.reference,
        python=job.workload.python or None,
        requirements_file=job.requirements_file or None,
        datasets=job.datasets,
        tags=job.workload.tags,
        cloned_from=job.cloned_from_id,
        nano_usd_per_hour=workload_price(job.workload),
        keep=list(spec.keep),
        keep_limit_bytes=spec.keep_limit_bytes,
        keep_failed_minutes=spec.keep_failed_s // 60,
        files=files_of(job) if with_files else [],
    )


def _strategy_reason(job: Job) -> str | None:
    """Explain the strategy of a job, if it differs from the submission."""
    if job.strategy_taken and job.strategy_taken != job.strategy:
        return f"{job.strategy_taken}: {job.strategy_reason}".removesuffix(": ")
    return job.strategy_reason or None
