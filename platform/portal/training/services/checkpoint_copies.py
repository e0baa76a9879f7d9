"""The newest checkpoint of a job in the store, so that it goes on where its node is no more.

The node of a job with one task sends it (`slipway.schemas.checkpoints`), the next node fetches it.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Max, Q, QuerySet

from portal.compute.models import Node
from portal.compute.resources import memory_text
from portal.core import clock
from portal.core.errors import Conflict, InvalidInput, NotFound, SlipwayError, TooLarge
from portal.storage.models import StoredFile
from portal.storage.ports import StoredBytes, UploadDeclaration
from portal.storage.services import add_file, discard_bytes, open_file, receive_bytes
from portal.training.models import Checkpoint, Job
from portal.workloads.lifecycle import ENDS
from portal.workloads.models import Lease, Workload
from portal.workloads.services.resume import may_go_on
from portal.workloads.transitions import add_event, locked
from slipway.schemas.agent import StoredCheckpoint
from slipway.schemas.checkpoints import (
    MAX_MANIFEST_BYTES,
    BadCheckpoint,
    CheckpointTooLarge,
    Receiver,
)
from slipway.schemas.workloads import ReasonCode, WorkloadState

# Bytes that the manifest and the archive format may add to the files.
_PACKING_BYTES = MAX_MANIFEST_BYTES + 16 * 1024**2
_MOST_STEP = 2**53
_LOST = frozenset({ReasonCode.NODE_LOST, ReasonCode.START_FAILED})
_SWEPT_AT_ONCE = 200
# Ids of workloads that were stopped early and may be resumed, from apps above.
_retained: list[Callable[[], QuerySet[Any, Any]]] = []


def retain_copies(ids: Callable[[], QuerySet[Any, Any]]) -> None:
    """Retain the copies of jobs that were stopped early as long as `ids` has their ids."""
    _retained.append(ids)


def limit_bytes() -> int:
    """Return how large a checkpoint may be to be copied, 0 for none."""
    limit: int = settings.SLIPWAY_CHECKPOINT_COPY_MAX_BYTES
    return limit


def newest_copy(*, workload_id: str) -> StoredCheckpoint | None:
    """Return what the store has of a job."""
    checkpoints = Checkpoint.objects.copied().filter(job=workload_id)
    details = checkpoints.values_list(
        "step", "file__blob__size_bytes", "file__blob__sha256"
    ).first()
    if details is None:
        return None
    return StoredCheckpoint(step=details[0], size_bytes=details[1] or 0, digest=details[2] or "")


def saved_at(workload_ids: Collection[str]) -> dict[str, datetime]:
    """Return when jobs saved their newest checkpoints, by id. Those without one are left out."""
    newest = Checkpoint.objects.order_by().filter(job__in=workload_ids).values_list("job")
    return dict(newest.annotate(Max("created_at")))


def store_copy(
    *,
    node: Node,
    task_id: str,
    epoch: int,
    step: int,
    chunks: Iterable[bytes],
    size_bytes: int | None,
) -> None:
    """Store a checkpoint from a node, replacing the job's copy in the store.

    Call it outside a transaction. Raises Conflict when the attempt is over (`stale_epoch`), the job
    has ended or has a newer one. Raises TooLarge, and InvalidInput for what is no whole checkpoint.
    """
    job = _job_of(node, task_id, epoch, step)
    _require_copy_needed(job, step)
    receiver = Receiver(step, limit_bytes=limit_bytes())
    try:
        stored = receive_bytes(
            chunks=_validate_stream(chunks, receiver),
            promised=UploadDeclaration(size_bytes=size_bytes),
            limit_bytes=limit_bytes() + _PACKING_BYTES,
        )
    except CheckpointTooLarge as error:
        raise _too_large(step, receiver.size_bytes) from error
    except BadCheckpoint as error:
        raise InvalidInput(
            f"This checkpoint is incomplete: {error}.",
            code="bad_checkpoint",
            next_step="Send the files of one checkpoint as listed in its manifest.",
        ) from error
    try:
        _record_copy(node, task_id, epoch, step, receiver.size_bytes, stored)
    except SlipwayError:
        discard_bytes(stored)
        raise


def _validate_stream(chunks: Iterable[bytes], receiver: Receiver) -> Iterator[bytes]:
    """Pass a stream on while it is a checkpoint."""
    for chunk in chunks:
        receiver.feed(chunk)
        yield chunk
    receiver.finish()


@transaction.atomic
def _record_copy(
    node: Node, task_id: str, epoch: int, step: int, size_bytes: int, stored: StoredBytes
) -> None:
    """Make received bytes the copy of the job, unless something has changed meanwhile."""
    workload = locked(_job_of(node, task_id, epoch, step).pk)
    assert workload is not None  # noqa: S101  (workloads are never deleted)
    job = _job_of(node, task_id, epoch, step)
    _require_copy_needed(job, step)
    _drop_copies(job.pk)
    file = add_file(
        project=workload.project,
        by=workload.submitted_by,
        name=f"checkpoint-{job.pk}-{step}.tar",
        stored=stored,
        is_audited=False,
    )
    checkpoints = Checkpoint.objects.filter(job=job)
    copied = {"file": file, "copied_at": clock.now()}
    if not checkpoints.filter(step=step).update(**copied):
        # Not reported yet, or removed from the node during the upload.
        is_newest = not checkpoints.filter(step__gt=step).exists()
        details = {"step": step, "attempt": epoch, "size_bytes": size_bytes}
        Checkpoint.objects.create(job=job, is_on_node=is_newest, **details, **copied)


def _job_of(node: Node, task_id: str, epoch: int, step: int) -> Job:
    """Return the job of a task this node may speak for. Raises Conflict, NotFound."""
    leases = Lease.objects.filter(node=node, task_id=task_id, epoch=epoch)
    lease = leases.select_related("workload").first()
    if lease is None or lease.reason in _LOST or lease.workload.epoch != epoch:
        raise Conflict(
            "This node no longer holds a lease on that task and epoch.",
            code="stale_epoch",
            next_step="Stop the task; it was assigned to another node.",
        )
    job = Job.objects.select_related("workload__project").filter(pk=lease.workload_id).first()
    if job is None or job.workload.nodes != 1 or step > _MOST_STEP:
        raise NotFound
    return job


def _require_copy_needed(job: Job, step: int) -> None:
    if job.workload.status in ENDS and not may_go_on(job.workload):
        raise Conflict(
            "The job has ended and needs no more checkpoints.",
            code="job_ended",
            next_step="Stop sending them.",
        )
    if not limit_bytes():
        raise _too_large(step, 0)
    if Checkpoint.objects.copied().filter(job=job, step__gt=step).exists():
        raise Conflict(
            "The store has a newer checkpoint of this job.",
            code="newer_checkpoint",
            next_step="Send only newer checkpoints.",
        )


def _too_large(step: int, size_bytes: int) -> TooLarge:
    return TooLarge(
        _too_large_text(step, size_bytes),
        code="checkpoint_too_large",
        next_step="Mount storage that all nodes share, or raise SLIPWAY_CHECKPOINT_COPY_MAX_MIB.",
    )


def _too_large_text(step: int, size_bytes: int) -> str:
    if not limit_bytes():
        return "Copying checkpoints to the store is disabled."
    limit = memory_text(limit_bytes())
    return (
        f"The checkpoint of step {step} has {memory_text(size_bytes)} and stays only on its "
        f"node: at most {limit} are copied to the store."
    )


def oversize_note(job: Job, *, attempt: int, step: int, size_bytes: int) -> str:
    """Return a line for the history when a checkpoint is the first of an attempt that is too large.

    Call it before the checkpoint is noted.
    """
    if not 0 < limit_bytes() < size_bytes or job.workload.nodes != 1:
        return ""
    before = Checkpoint.objects.filter(job=job, attempt=attempt, size_bytes__gt=limit_bytes())
    return "" if before.exists() else _too_large_text(step, size_bytes)


def copy_for(*, node: Node, task_id: str, epoch: int, step: int) -> tuple[Iterator[bytes], int]:
    """Return a checkpoint as it was sent, and its size, for the node that is to go on from it.

    Raises Conflict (`stale_epoch`), NotFound.
    """
    job = _job_of(node, task_id, epoch, step)
    files = StoredFile.objects.select_related("blob")
    checkpoints = Checkpoint.objects.copied().filter(job=job, step=step)
    file = files.filter(pk__in=checkpoints.values("file")).first()
    if file is None:
        raise NotFound
    return open_file(file=file), file.blob.size_bytes


def record_resume_step(*, workload_id: str) -> None:
    """Record in the history of a job that lost its node from which step it resumes."""
    with transaction.atomic():
        workload = locked(workload_id)
        if workload is None or workload.nodes != 1:
            return
        saved = Checkpoint.objects.filter(job=workload_id).order_by("-step")
        newest, copied = saved.first(), saved.copied().first()
        if newest is not None:
            add_event(workload, kind="checkpoint", message=_resume_message(newest, copied))


def _resume_message(newest: Checkpoint, copied: Checkpoint | None) -> str:
    if copied is not None and copied.step == newest.step:
        return f"It continues from step {copied.step}: that checkpoint is in the store."
    alone = (
        f"The newest checkpoint, of step {newest.step}, is on the lost node but not in the store."
    )
    if copied is None:
        return (
            f"{alone} Unless nodes share their storage, it starts from the beginning on another "
            "node."
        )
    return f"{alone} Unless nodes share their storage, it continues from step {copied.step}."


def delete_unneeded() -> int:
    """Delete the copies of jobs that will not resume. Returns the number of jobs."""
    resumable = Q(state=WorkloadState.STOPPED, reason=ReasonCode.BUDGET)
    for ids in _retained:
        resumable |= Q(state=WorkloadState.STOPPED, reason=ReasonCode.EARLY_STOP, pk__in=ids())
    ended = Workload.objects.filter(state__in=ENDS).exclude(resumable)
    jobs = Checkpoint.objects.copied().filter(job__workload__in=ended).values_list("job", flat=True)
    dropped = 0
    for job_id in jobs.order_by("job")[:_SWEPT_AT_ONCE]:
        with transaction.atomic():
            workload = locked(job_id)
            if workload and ended.filter(pk=job_id).exists():
                _drop_copies(job_id)
                dropped += 1
    return dropped


def _drop_copies(job_id: str) -> None:
    """Delete a job's checkpoint from the store. The sweep of the store frees its bytes."""
    copied = Checkpoint.objects.copied().filter(job=job_id)
    files = list(copied.values_list("file", flat=True))
    copied.filter(is_on_node=False).delete()
    Checkpoint.objects.filter(job=job_id, is_on_node=True).update(file=None, copied_at=None)
    StoredFile.objects.filter(pk__in=files).delete()
