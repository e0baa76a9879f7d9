"""The ends of allocations: what follows for their workloads, leases and nodes."""

from itertools import pairwise
from typing import Final

from django.db import transaction
from django.db.models import Max

from portal.compute.engines import EndCause, engine_label
from portal.compute.models import Pool
from portal.compute.services.node_registration import end_allocation
from portal.core import clock
from portal.workloads.allocation_usage import record_bill
from portal.workloads.completion import advance_workload, begin_stopping, close_lease
from portal.workloads.kept_tasks import kept_end_text
from portal.workloads.lifecycle import ACTIVE, AllocationState, StopOutcome, allocation_sources
from portal.workloads.models import Allocation, Lease, Workload
from portal.workloads.ports import kind_of
from portal.workloads.transitions import add_event, locked, move
from slipway.schemas.truncation import shorten
from slipway.schemas.workloads import ReasonCode, WorkloadState

# Ends without a start are tried again so often: the machine may have been at fault.
_FALSE_STARTS: Final = 3
# A job that never comes as far as a checkpoint would run for ever. See `_makes_no_progress`.
_LIMITS_IN_VAIN: Final = 5
_RUNS_AGAIN: Final = frozenset(
    {EndCause.PREEMPTED, EndCause.NODE_FAILED, EndCause.TIME_LIMIT, EndCause.VANISHED}
)


def is_wanted(allocation: Allocation) -> bool:
    """Return True if the placement of an allocation is still to come, or in force.

    Once it is not, it never is again, so its workload may be a moment old.
    """
    workload = allocation.workload
    if workload.status == WorkloadState.QUEUED:
        return workload.epoch + 1 == allocation.epoch
    return workload.status in ACTIVE and workload.epoch == allocation.epoch


def conclude(
    allocation: Allocation, cause: EndCause, detail: str, *, failure: ReasonCode | None = None
) -> None:
    """Record the end of an allocation, with what follows for its workload and its nodes.

    With `failure` the workload fails for good, and `detail` is the whole reason.
    """
    with transaction.atomic():
        workload = locked(allocation.workload_id)
        rows = Allocation.objects.filter(
            pk=allocation.pk, state__in=allocation_sources(AllocationState.ENDED)
        )
        timestamp = clock.now()
        changes = {"cause": cause.value, "detail": shorten(detail, 500), "ended_at": timestamp}
        if not rows.update(state=AllocationState.ENDED, **changes) or workload is None:
            return
        _close_leases(allocation, workload, cause, detail)
        end_allocation(reserved_for=allocation.reserved_for)
        record_bill(allocation, workload, ended_at=timestamp)
        workload.refresh_from_db()
        if workload.status == WorkloadState.QUEUED:
            _conclude_waiting(allocation, workload, cause, detail, failure)


def _close_leases(allocation: Allocation, workload: Workload, cause: EndCause, detail: str) -> None:
    """Close the leases of agents that are gone and have not reported an end."""
    leases = Lease.objects.open().filter(workload=workload, epoch=allocation.epoch)
    left = list(leases.select_for_update(of=("self",), no_key=True))
    if not left:
        return
    text = _end_text(allocation.pool, cause, detail)
    if cause is EndCause.CANCELLED and allocation.stopped_at is None:
        begin_stopping(workload, plan=StopOutcome.STOP, reason=ReasonCode.USER, text=text)
    for lease in left:
        close_lease(lease, at=clock.now(), reason=_reason_of(cause), message=text)
        if lease.failed_at is not None:
            add_event(workload, kind="task_ended", message=kept_end_text(lease, text))
    advance_workload(workload)


def _reason_of(cause: EndCause) -> ReasonCode:
    if cause is EndCause.OUT_OF_MEMORY:
        return ReasonCode.OUT_OF_MEMORY
    if cause in (EndCause.PREEMPTED, EndCause.TIME_LIMIT, EndCause.CANCELLED):
        return ReasonCode.PREEMPTED
    return ReasonCode.NODE_LOST


def _end_text(pool: Pool, cause: EndCause, detail: str) -> str:
    engine = engine_label(pool.engine)
    what = {
        EndCause.FINISHED: f"The allocation in pool {pool.name} ended",
        EndCause.CANCELLED: f"It was cancelled in {engine}, and not in Slipway",
        EndCause.PREEMPTED: f"{engine} preempted it",
        EndCause.TIME_LIMIT: f"It reached the time limit of its allocation in pool {pool.name}",
        EndCause.NODE_FAILED: f"A node of its allocation in pool {pool.name} failed",
        EndCause.OUT_OF_MEMORY: f"{engine} killed it: it used more memory than its tier has",
        EndCause.FAILED: f"The allocation in pool {pool.name} failed",
        EndCause.VANISHED: f"{engine} does not know its allocation any more",
    }[cause]
    return f"{what}: {detail.rstrip('.')}." if detail else f"{what}."


def _conclude_waiting(
    allocation: Allocation,
    workload: Workload,
    cause: EndCause,
    detail: str,
    failure: ReasonCode | None,
) -> None:
    """Decide about a workload that waits: its allocation ended before, or with, its placement."""
    is_current = workload.epoch <= allocation.epoch <= workload.epoch + 1
    if not is_current or allocation.stopped_at is not None:
        return
    if failure is not None:
        end_workload(workload, WorkloadState.FAILED, failure, detail)
        return
    text = _end_text(allocation.pool, cause, detail)
    if cause is EndCause.CANCELLED:
        end_workload(workload, WorkloadState.STOPPED, ReasonCode.USER, text)
        return
    never_placed = allocation.epoch == workload.epoch + 1
    if cause is EndCause.TIME_LIMIT and _makes_no_progress(workload):
        text = (
            f"It reached the time limit of pool {allocation.pool.name} {_LIMITS_IN_VAIN} "
            "times in a row without a new checkpoint."
        )
        step = "Save checkpoints more often, or choose a pool with a longer time limit."
        end_workload(workload, WorkloadState.FAILED, ReasonCode.MAX_LIFETIME, text, next_step=step)
        return
    if not never_placed or cause in _RUNS_AGAIN:
        # It waits for the next allocation. Its agents knew of a signal, and not of the reason.
        if detail:
            add_event(workload, kind="queued", message=text)
        return
    earlier = Allocation.objects.filter(workload=workload, epoch=allocation.epoch)
    if earlier.count() >= _FALSE_STARTS:
        end_workload(workload, WorkloadState.FAILED, ReasonCode.START_FAILED, text)
    else:
        add_event(workload, kind="queued", message=f"Trying again: {text}")


def _makes_no_progress(workload: Workload) -> bool:
    """Return True if its last allocations all ended at their time limit, and brought it nowhere.

    A new checkpoint is progress, and so are steps that come further each time.
    """
    kind = kind_of(workload.kind)
    if not kind.moves_when_drained:
        return False
    limited = Allocation.objects.filter(workload=workload, cause=EndCause.TIME_LIMIT.value)
    saved_at = kind.copies.saved_at([workload.pk]).get(workload.pk)
    if saved_at is not None:
        limited = limited.filter(created_at__gt=saved_at)
    epochs = list(limited.order_by("-pk").values_list("epoch", flat=True)[:_LIMITS_IN_VAIN])
    if len(epochs) < _LIMITS_IN_VAIN:
        return False
    leases = Lease.objects.filter(workload=workload, epoch__in=epochs).order_by("epoch")
    steps = leases.values_list("epoch").annotate(most=Max("step")).values_list("most", flat=True)
    reached = [-1 if step is None else step for step in steps]
    return not all(later > earlier for earlier, later in pairwise(reached))


def end_workload(
    workload: Workload,
    target: WorkloadState,
    reason: ReasonCode,
    text: str,
    *,
    next_step: str = "",
) -> None:
    """End a workload that waits, with the reason."""
    move(
        workload,
        target,
        kind=target.value,
        message=text,
        reason=reason,
        reason_text=shorten(text, 500),
        next_step=next_step,
        ended_at=clock.now(),
    )
