"""Orders the machines of workloads in pools from their engines, and follows what becomes of them.

A workload in a pool queues like any other. When its turn comes an `Allocation` is committed, then
the engine is asked: a crash between the two asks again with the same name, and engines answer a
name that they know with what they have. The agents that the engine starts join as nodes reserved
for that placement, and the scheduler places the workload there as everywhere.

Each step handles each allocation in a transaction of its own and may be repeated or interrupted
anywhere. An engine that is away delays its own pool alone.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from itertools import pairwise

import structlog
from django.db import transaction
from django.db.models import Max, Q

from portal.compute.engines import (
    AllocationOrder,
    AllocationPhase,
    AllocationReport,
    Answer,
    BatchEngine,
    EndCause,
    Engine,
    EngineAway,
    EngineFull,
    EngineRefused,
    EngineUnusable,
    engine_kinds,
    engine_label,
    submit_many,
)
from portal.compute.models import Node, Pool
from portal.compute.resources import Amount
from portal.compute.services.node_registration import create_allocation_tokens, end_allocation
from portal.compute.services.pool_accounts import account_name, check_links, has_open_links
from portal.core import clock
from portal.core.errors import InvalidInput
from portal.workloads.allocation_batches import put_in_batches
from portal.workloads.allocation_usage import is_usage_due, record_bill, record_usage
from portal.workloads.completion import advance_workload, begin_stopping, close_lease
from portal.workloads.lifecycle import (
    ACTIVE,
    OPEN_ALLOCATIONS,
    AllocationState,
    StopOutcome,
    allocation_sources,
)
from portal.workloads.models import Allocation, Lease, Workload
from portal.workloads.ports import kind_of
from portal.workloads.queue import Queue
from portal.workloads.transitions import add_event, locked, move
from slipway.schemas.truncation import shorten
from slipway.schemas.workloads import ReasonCode, WorkloadState

log = structlog.get_logger(__name__)
# An agent uses its token within seconds of its start, but it may wait for that for days.
_TOKENS_LAST = timedelta(days=30)
# The time that the engine leaves between its signal and the kill.
_GRACE = timedelta(seconds=30)
# A second request to stop follows when the first has not helped for so long.
_STOP_AGAIN = timedelta(seconds=60)
# Ends without a start are tried again so often: the machine may have been at fault.
_FALSE_STARTS = 3
# A job that never comes as far as a checkpoint would run for ever. See `_makes_no_progress`.
_LIMITS_IN_VAIN = 5
_RUNS_AGAIN = {EndCause.PREEMPTED, EndCause.NODE_FAILED, EndCause.TIME_LIMIT, EndCause.VANISHED}


def tend_allocations() -> None:
    """Follow the allocations of every pool, then order what waits."""
    in_use = Allocation.objects.open().values("pool")
    for pool in Pool.objects.filter(Q(removed_at__isnull=True) | Q(pk__in=in_use)):
        try:
            _tend(pool)
        except EngineUnusable as problem:
            _note_problem(pool, f"{engine_label(pool.engine)} refuses the pool: {problem}")
        except EngineAway as problem:
            _note_problem(pool, f"{engine_label(pool.engine)} does not answer: {problem}")
        except Exception:
            log.exception("the allocations of a pool could not be followed", pool=pool.name)


def use_of_pool(pool: Pool) -> str:
    """Return how much work waits or runs in a pool, as a sentence."""
    count = Workload.objects.unfinished().filter(pool=pool).count()
    if count:
        return f"Work waits or runs in pool {pool.name} ({count})."
    is_ending = Allocation.objects.open().filter(pool=pool).exists()
    return (
        f"Pool {pool.name} still ends the allocation of work that has ended." if is_ending else ""
    )


def _tend(pool: Pool) -> None:
    open_ones = list(Allocation.objects.open().filter(pool=pool))
    links = has_open_links(pool)
    is_idle = not open_ones and not links and not is_usage_due(pool)
    if is_idle and not Workload.objects.waiting_in(pool.pk).exists():
        return
    engine = engine_kinds()[pool.engine].open(pool.pk, pool.settings)
    if links:
        check_links(pool, engine)
    known = [allocation for allocation in open_ones if allocation.handle]
    reports = engine.look([allocation.handle for allocation in known]) if known else {}
    _attach(open_ones, pool)
    _store_details(known, reports)
    for allocation in known:
        report = reports.get(allocation.handle) or AllocationReport(
            AllocationPhase.ENDED, cause=EndCause.VANISHED
        )
        _follow(engine, allocation, report)
    # After the reports, which an engine may give while it takes no orders.
    _submit_all(engine, [allocation for allocation in open_ones if not allocation.handle])
    _note_problem(pool, "")
    ordered = _order_waiting(pool)
    if isinstance(engine, BatchEngine):
        put_in_batches(ordered)
    _submit_all(engine, ordered)
    record_usage(pool, engine)


def _attach(allocations: Sequence[Allocation], pool: Pool) -> None:
    """Read the workloads of allocations, all of them by one query."""
    ids = {allocation.workload_id for allocation in allocations}
    workloads = Workload.objects.select_related("project").in_bulk(ids)
    for allocation in allocations:
        allocation.workload, allocation.pool = workloads[allocation.workload_id], pool


def _note_problem(pool: Pool, problem: str) -> None:
    problem = shorten(problem, 500)
    if problem != pool.problem:
        Pool.objects.filter(pk=pool.pk).update(problem=problem)


# Orders


def _order_waiting(pool: Pool) -> list[Allocation]:
    """Commit orders for what waits: by fair share, within quotas, as much as the pool takes."""
    if not pool.is_open or pool.removed_at is not None:
        return []
    room = pool.most_requests - Allocation.objects.open().filter(pool=pool).count()
    if room <= 0:
        return []
    # All are chosen first, because what is ordered leaves the queue that is read.
    allocations = [_commit(pool, workload_id) for workload_id in _next_in_queue(pool, room)]
    return [allocation for allocation in allocations if allocation is not None]


def _next_in_queue(pool: Pool, room: int) -> list[str]:
    """Return the workloads to order next, at most `room`."""
    queue = Queue(clock.now().timestamp(), batch=room, pool_id=pool.pk)
    queue.count_ordered(_ordered_totals())
    chosen: list[str] = []
    while len(chosen) < room:
        line = queue.next_queue()
        first = line.first() if line else None
        if line is None or first is None:
            break
        if line.blocks(first.total):
            line.skip_first()
            continue
        line.pop_first(first.total)
        queue.reprioritize(line)
        chosen.append(first.workload_id)
    return chosen


def _ordered_totals() -> list[tuple[str, Amount]]:
    """Return project and resources of everything that engines were asked for and is not placed."""
    waiting = Workload.objects.queued().filter(allocations__state__in=OPEN_ALLOCATIONS)
    columns = ("project_id", "nodes", "cpu_millis", "memory_bytes", "gpus")
    return [
        (project_id, Amount(*amount).times(nodes))
        for project_id, nodes, *amount in waiting.values_list(*columns)
    ]


def _commit(pool: Pool, workload_id: str) -> Allocation | None:
    """Create the row of an allocation, unless the workload was stopped or ordered meanwhile."""
    with transaction.atomic():
        workload = locked(workload_id)
        if workload is None or workload.status != WorkloadState.QUEUED:
            return None
        if Allocation.objects.open().filter(workload=workload).exists():
            return None
        try:
            account = account_name(pool=pool, user=workload.submitted_by)
        except InvalidInput as error:  # unlinked since it was submitted
            _end(workload, WorkloadState.FAILED, ReasonCode.START_FAILED, error.message)
            return None
        return Allocation.objects.create(
            workload=workload, pool=pool, epoch=workload.epoch + 1, account=account
        )


def _submit_all(engine: Engine, allocations: Sequence[Allocation]) -> None:
    """Ask the engine for allocations, those of a batch at once. Raises EngineAway."""
    groups: dict[str, list[Allocation]] = {}
    for allocation in allocations:
        groups.setdefault(allocation.batch or allocation.name, []).append(allocation)
    full: dict[str, EngineFull] = {}
    for name, group in groups.items():
        account = group[0].account
        if account in full:
            answers: Mapping[str, Answer] = {each.name: full[account] for each in group}
        else:
            answers = submit_many(engine, name, [_order_of(each) for each in group])
        for allocation in group:
            answer = answers.get(allocation.name)
            if isinstance(answer, EngineFull):
                full[account] = answer
            if answer is not None:
                _note_answer(allocation, answer)


def _order_of(allocation: Allocation) -> AllocationOrder:
    """Return the order for an allocation, the same one each time.

    An allocation that is not needed any more is ordered as well, and then stopped as every other:
    an earlier order may have reached the engine.
    """
    workload = allocation.workload
    names = [f"{allocation.name}-{index}" for index in range(workload.nodes)]
    tokens = create_allocation_tokens(
        pool=allocation.pool,
        reserved_for=allocation.reserved_for,
        names=names,
        valid_for=_TOKENS_LAST,
    )
    lifetime = workload.max_lifetime_s
    return AllocationOrder(
        name=allocation.name,
        label=f"slipway {workload.project.slug} {workload.name}",
        tasks=workload.nodes,
        amount=workload.amount,
        gpu_model=workload.gpu_model,
        # The start of the agent and of the environment come on top of the lifetime.
        time_limit=timedelta(seconds=lifetime) + timedelta(minutes=10) if lifetime else None,
        grace=_GRACE,
        join_tokens=tuple(tokens),
        account=allocation.account,
        project=workload.project.slug,
        place=allocation.place,
    )


def _note_answer(allocation: Allocation, answer: Answer) -> None:
    """Store the engine's answer to an order."""
    engine = engine_label(allocation.pool.engine)
    if isinstance(answer, EngineRefused):
        _conclude(allocation, EndCause.FAILED, str(answer), is_refused=True)
        return
    if isinstance(answer, EngineFull):
        detail = shorten(f"{engine} takes no more jobs now: {answer}", 500)
        if detail != allocation.detail:
            Allocation.objects.open().filter(pk=allocation.pk).update(detail=detail)
        return
    rows = Allocation.objects.filter(
        pk=allocation.pk, state__in=allocation_sources(AllocationState.SUBMITTED)
    )
    if rows.update(state=AllocationState.SUBMITTED, handle=answer, detail=""):
        allocation.state, allocation.handle = AllocationState.SUBMITTED, answer
        add_event(
            allocation.workload,
            kind="ordered",
            message=f"Submitted to pool {allocation.pool.name} ({engine} {answer}).",
        )


# Ends


def _is_wanted(allocation: Allocation) -> bool:
    """Return True if the placement of an allocation is still to come, or in force.

    Once it is not, it never is again, so its workload may be a moment old.
    """
    workload = allocation.workload
    if workload.status == WorkloadState.QUEUED:
        return workload.epoch + 1 == allocation.epoch
    return workload.status in ACTIVE and workload.epoch == allocation.epoch


def _follow(engine: Engine, allocation: Allocation, report: AllocationReport) -> None:
    if report.cause is EndCause.VANISHED and _is_heard(allocation):
        return  # its agents know better than an engine that has forgotten it
    if report.phase is AllocationPhase.ENDED:
        _conclude(allocation, report.cause or EndCause.FINISHED, report.detail)
        return
    if not _is_wanted(allocation) and _may_ask_to_stop(allocation):
        engine.stop(allocation.handle, account=allocation.account)


def _store_details(
    allocations: Sequence[Allocation], reports: Mapping[str, AllocationReport]
) -> None:
    """Store why allocations wait, those with the same new text at once."""
    changed: dict[str, list[str]] = {}
    for allocation in allocations:
        report = reports.get(allocation.handle)
        if report is None or report.phase is AllocationPhase.ENDED:
            continue
        detail = shorten(report.detail, 500)
        if detail != allocation.detail:
            changed.setdefault(detail, []).append(allocation.pk)
    for detail, ids in changed.items():
        Allocation.objects.open().filter(pk__in=ids).update(detail=detail)


def _is_heard(allocation: Allocation) -> bool:
    """Return True if an agent of an allocation has sent a heartbeat a moment ago."""
    nodes = Node.objects.accepting_work(clock.now())
    return nodes.filter(reserved_for=allocation.reserved_for).exists()


def _may_ask_to_stop(allocation: Allocation) -> bool:
    """Note the request to stop. Returns whether it is due: once, and again if nothing happens.

    Agents whose task has ended leave by themselves, so they get time for their last logs. It also
    keeps an end that somebody caused in the engine apart from one that we ask for.
    """
    timestamp = clock.now()
    if Node.objects.present().filter(reserved_for=allocation.reserved_for).exists():
        workload = Workload.objects.get(pk=allocation.workload_id)
        if (workload.ended_at or workload.waits_since) > timestamp - _GRACE:
            return False
    due = Q(stopped_at__isnull=True) | Q(stopped_at__lte=timestamp - _STOP_AGAIN)
    rows = Allocation.objects.open().filter(due, pk=allocation.pk)
    return bool(rows.update(stopped_at=timestamp))


def _conclude(
    allocation: Allocation, cause: EndCause, detail: str, *, is_refused: bool = False
) -> None:
    """Record the end of an allocation, with what follows for its workload and its nodes."""
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
            _conclude_waiting(allocation, workload, cause, detail, is_refused=is_refused)


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
    *,
    is_refused: bool,
) -> None:
    """Decide about a workload that waits: its allocation ended before, or with, its placement."""
    is_current = workload.epoch <= allocation.epoch <= workload.epoch + 1
    if not is_current or allocation.stopped_at is not None:
        return
    text = _end_text(allocation.pool, cause, detail)
    if is_refused:
        text = f"{engine_label(allocation.pool.engine)} refused it: {detail}"
    if cause is EndCause.CANCELLED:
        _end(workload, WorkloadState.STOPPED, ReasonCode.USER, text)
        return
    never_placed = allocation.epoch == workload.epoch + 1
    if cause is EndCause.TIME_LIMIT and _makes_no_progress(workload):
        text = (
            f"It reached the time limit of pool {allocation.pool.name} {_LIMITS_IN_VAIN} "
            "times in a row without a new checkpoint."
        )
        step = "Save checkpoints more often, or choose a pool with a longer time limit."
        _end(workload, WorkloadState.FAILED, ReasonCode.MAX_LIFETIME, text, next_step=step)
        return
    if not never_placed or cause in _RUNS_AGAIN:
        # It waits for the next allocation. Its agents knew of a signal, and not of the reason.
        if detail:
            add_event(workload, kind="queued", message=text)
        return
    earlier = Allocation.objects.filter(workload=workload, epoch=allocation.epoch)
    if is_refused or earlier.count() >= _FALSE_STARTS:
        _end(workload, WorkloadState.FAILED, ReasonCode.START_FAILED, text)
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


def _end(
    workload: Workload,
    target: WorkloadState,
    reason: ReasonCode,
    text: str,
    *,
    next_step: str = "",
) -> None:
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
