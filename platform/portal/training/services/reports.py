"""Reports of jobs: checkpoints, the strategy in use, and the files they keep."""

from datetime import datetime

from django.db.models import Max

from portal.training.kept_files import files_line, job_files
from portal.training.models import Checkpoint, Job, KeptFiles
from portal.training.services.checkpoint_copies import oversize_note
from slipway.schemas.agent import ChosenStrategy, SavedCheckpoint, TaskReport
from slipway.schemas.kept_files import FilesReport, JobFiles

MAX_CHECKPOINTS = 1000
MAX_TASKS = 32


def accept_report(*, workload_id: str, attempt: int, report: TaskReport, at: datetime) -> str:
    """Accept a report. See `portal.workloads.ports.ReportHandler`."""
    job = Job.objects.filter(pk=workload_id).first()
    if job is None:
        return ""
    if report.files is not None:
        return _record_files(job, attempt, report.files)
    if report.checkpoint is not None:
        return _record_checkpoint(job, attempt, report.checkpoint, at)
    return "" if report.strategy is None else _record_strategy(job, report.strategy)


def _record_files(job: Job, attempt: int, files: FilesReport) -> str:
    """Record which files of a task were kept, once a task and attempt."""
    KeptFiles.objects.update_or_create(
        job=job, attempt=attempt, rank=files.rank, defaults={"report": files.model_dump()}
    )
    return files_line(files)


def files_of(job: Job) -> list[JobFiles]:
    """Return the files of the latest attempt that kept any, by rank."""
    attempt = job.files.aggregate(latest=Max("attempt"))["latest"]
    rows = job.files.filter(attempt=attempt).order_by("rank")[:MAX_TASKS]
    return [job_files(FilesReport.model_validate(row.report), row.attempt) for row in rows]


def _record_checkpoint(job: Job, attempt: int, saved: SavedCheckpoint, at: datetime) -> str:
    """Record a checkpoint, and delete those the job's retention rule has removed.

    Steps grow within an attempt, so one below what is known of it comes late and says nothing new.
    """
    checkpoints = Checkpoint.objects.filter(job=job)
    if checkpoints.filter(attempt=attempt, step__gt=saved.step).exists():
        return ""
    line = oversize_note(job, attempt=attempt, step=saved.step, size_bytes=saved.size_bytes)
    known = checkpoints.filter(step=saved.step, attempt=attempt)
    if not known.update(size_bytes=saved.size_bytes, is_on_node=True):
        details = {"attempt": attempt, "size_bytes": saved.size_bytes, "is_on_node": True}
        Checkpoint.objects.update_or_create(
            job=job, step=saved.step, defaults=details | {"created_at": at}
        )
    if saved.kept:
        checkpoints.exclude(step__in=[*saved.kept, saved.step]).forget()
    oldest = checkpoints.order_by("-step").values_list("step", flat=True)[MAX_CHECKPOINTS:].first()
    if oldest is not None:
        checkpoints.filter(step__lte=oldest).forget()
    return line


def _record_strategy(job: Job, taken: ChosenStrategy) -> str:
    """Record the training strategy if it changed. Returns a line for the history, or "" (none)."""
    if (job.strategy_taken, job.strategy_reason) == (taken.word, taken.reason):
        return ""
    Job.objects.filter(pk=job.pk).update(strategy_taken=taken.word, strategy_reason=taken.reason)
    return f"Strategy: {taken.word}: {taken.reason}" if taken.reason else f"Strategy: {taken.word}."
