"""Ending a workload, or putting it back into the queue, on somebody's word."""

from django.db import transaction

from portal.accounts import audit
from portal.accounts.models import User
from portal.core import clock
from portal.core.errors import Conflict
from portal.workloads.completion import begin_stopping
from portal.workloads.lifecycle import ENDS, WAITING, StopOutcome
from portal.workloads.models import Workload
from portal.workloads.retries import NEXT_STEPS
from portal.workloads.transitions import locked, move
from slipway.schemas.truncation import shorten
from slipway.schemas.workloads import ReasonCode, WorkloadState


def stop_workload(
    *,
    workload: Workload,
    by: User | None = None,
    reason: ReasonCode = ReasonCode.USER,
    message: str = "",
    next_step: str = "",
) -> Workload:
    """Ask a workload to end: at once while it waits, after its tasks have stopped once it runs.

    Its parts are stopped with it. Idempotent: a workload that has ended or is stopping for good
    stays as it is, and one that has failed and is kept ends as failed. `message` is the sentence
    people read. `by` is the person who asked, if one did.
    """
    text = message or (f"Stopped by {by.display_name}." if by else "Stopped.")
    with transaction.atomic():
        current = _locked(workload)
        is_kept = current.is_kept
        if current.status in WAITING:
            changed = move(
                current,
                WorkloadState.STOPPED,
                kind="stopped",
                message=text,
                reason=reason,
                reason_text=shorten(text, 500),
                next_step=shorten(next_step or NEXT_STEPS.get(reason, ""), 300),
                ended_at=clock.now(),
                hold="",
                held_nodes=[],
                held_since=None,
            )
        elif current.status in ENDS:
            changed = False
        else:
            changed = begin_stopping(
                current, plan=StopOutcome.STOP, reason=reason, text=text, next_step=next_step
            )
        if changed and by is not None:
            _audit("workload.end_kept" if is_kept else "workload.stop", current, text)
        if changed:
            _stop_parts(current, reason)
    return current


def _stop_parts(workload: Workload, reason: ReasonCode) -> None:
    """Stop the parts of a workload, in the transaction that stops it.

    Parents are locked before their parts everywhere, and parts in the order of their ids.
    """
    for part in Workload.objects.unfinished().parts_of(workload).order_by("pk"):
        stop_workload(
            workload=part,
            reason=reason,
            message=f"Stopped with {workload.name}, which it is a part of.",
        )


def requeue_workload(
    *,
    workload: Workload,
    by: User | None = None,
    reason: ReasonCode = ReasonCode.PREEMPTED,
    message: str = "",
) -> Workload:
    """Stop a running workload and queue it again. Idempotent while it stops.

    Raises Conflict for one that waits or has ended.
    """
    text = message or "Requeued."
    with transaction.atomic():
        current = _locked(workload)
        if current.status in WAITING or current.status in ENDS:
            raise Conflict(
                f"The workload is {current.state}, so it cannot be requeued.",
                next_step="Reload the page.",
            )
        changed = begin_stopping(current, plan=StopOutcome.REQUEUE, reason=reason, text=text)
        if changed and by is not None:
            _audit("workload.requeue", current, text)
    return current


def _locked(workload: Workload) -> Workload:
    workload_row = locked(workload.pk)
    assert workload_row is not None  # noqa: S101  (workloads are never deleted)
    return workload_row


def _audit(verb: str, workload: Workload, text: str) -> None:
    audit.record(
        verb,
        kind="workload",
        target=workload,
        label=workload.name,
        project=workload.project,
        after={"message": text},
    )
