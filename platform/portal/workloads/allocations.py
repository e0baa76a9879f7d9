"""Orders the machines of workloads in pools from their engines, and follows what becomes of them.

A workload in a pool queues like any other. When its turn comes an `Allocation` is committed, then
the engine is asked: a crash between the two asks again with the same name, and engines answer a
name that they know with what they have. The agents that the engine starts join as nodes reserved
for that placement, and the scheduler places the workload there as everywhere.

Each step handles each allocation in a transaction of its own and may be repeated or interrupted
anywhere. An engine that is away delays its own pool alone.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import structlog
from django.db.models import Q

from portal.compute.engines import (
    AllocationPhase,
    AllocationReport,
    BatchEngine,
    EndCause,
    Engine,
    EngineAway,
    EngineUnusable,
    engine_kinds,
    engine_label,
)
from portal.compute.models import Node, Pool
from portal.compute.services.pool_accounts import check_links, has_open_links
from portal.core import clock
from portal.workloads.allocation_batches import put_in_batches
from portal.workloads.allocation_ends import conclude, is_wanted
from portal.workloads.allocation_orders import GRACE, commit_orders, submit_orders
from portal.workloads.allocation_usage import is_usage_due, record_usage
from portal.workloads.models import Allocation, Workload
from slipway.schemas.truncation import shorten

log = structlog.get_logger(__name__)
# A second request to stop follows when the first has not helped for so long.
_STOP_AGAIN = timedelta(seconds=60)
# Engines give whole seconds, so the time of the limit differs a little each time.
_LIMIT_STEP = timedelta(seconds=5)


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


def waits_in_pool() -> bool:
    """Return True if work in a pool waits that no machine was ordered for."""
    open_ones = Allocation.objects.open().values("workload")
    return Workload.objects.queued().filter(pool__isnull=False).exclude(pk__in=open_ones).exists()


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
    _note_reports(known, reports)
    for allocation in known:
        report = reports.get(allocation.handle) or AllocationReport(
            AllocationPhase.ENDED, cause=EndCause.VANISHED
        )
        _follow(engine, allocation, report)
    # After the reports, which an engine may give while it takes no orders.
    submit_orders(engine, [allocation for allocation in open_ones if not allocation.handle])
    _note_problem(pool, "")
    ordered = commit_orders(pool)
    if isinstance(engine, BatchEngine):
        put_in_batches(ordered)
    submit_orders(engine, ordered)
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


def _follow(engine: Engine, allocation: Allocation, report: AllocationReport) -> None:
    if report.cause is EndCause.VANISHED and _is_heard(allocation):
        return  # its agents know better than an engine that has forgotten it
    if report.phase is AllocationPhase.ENDED:
        conclude(allocation, report.cause or EndCause.FINISHED, report.detail)
        return
    if not is_wanted(allocation) and _may_ask_to_stop(allocation):
        engine.stop(allocation.handle, account=allocation.account)


def _note_reports(
    allocations: Sequence[Allocation], reports: Mapping[str, AllocationReport]
) -> None:
    """Store why allocations wait, those with the same new text at once, and their time limits."""
    changed: dict[str, list[str]] = {}
    for allocation in allocations:
        report = reports.get(allocation.handle)
        if report is None or report.phase is AllocationPhase.ENDED:
            continue
        if report.ends_at is not None:
            _note_limit(allocation, report.ends_at)
        detail = shorten(report.detail, 500)
        if detail != allocation.detail:
            changed.setdefault(detail, []).append(allocation.pk)
    for detail, ids in changed.items():
        Allocation.objects.open().filter(pk__in=ids).update(detail=detail)


def _note_limit(allocation: Allocation, limit_at: datetime) -> None:
    """Store when an allocation reaches its time limit, which ends a kept task at the latest."""
    known = allocation.limit_at
    if known is None or abs(limit_at - known) >= _LIMIT_STEP:
        Allocation.objects.open().filter(pk=allocation.pk).update(limit_at=limit_at)
    if allocation.workload.is_kept:
        kept = Workload.objects.kept().filter(pk=allocation.workload_id, epoch=allocation.epoch)
        kept.filter(kept_until__gt=limit_at).update(kept_until=limit_at)


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
        if (workload.ended_at or workload.waits_since) > timestamp - GRACE:
            return False
    due = Q(stopped_at__isnull=True) | Q(stopped_at__lte=timestamp - _STOP_AGAIN)
    rows = Allocation.objects.open().filter(due, pk=allocation.pk)
    return bool(rows.update(stopped_at=timestamp))
