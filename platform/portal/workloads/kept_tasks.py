"""Tasks that have failed and stay for a time, so that their submitter can open shells in them.

The workload stays `running`, with `kept_until`, and its lease stays open with the verdict in it. So
the task is charged, ended and lost like any other, and ends as failed whatever ends it.
"""

import signal
from datetime import datetime, timedelta

from django.db import transaction

from portal.accounts.models import User
from portal.accounts.notifications import Audience, Listed, Notification, newest_of
from portal.core import clock
from portal.workloads.completion import begin_stopping, failed_leases, task_end
from portal.workloads.costs import kept_cost, open_price, price_steps, unix_ms
from portal.workloads.lifecycle import StopOutcome
from portal.workloads.models import Allocation, Lease, Workload
from portal.workloads.ports import kind_of
from portal.workloads.retries import root_cause
from portal.workloads.transitions import locked
from slipway.schemas.money import dollars
from slipway.schemas.notifications import NotificationKind
from slipway.schemas.workloads import ReasonCode, WorkloadState

# Nodes end kept tasks themselves. This is for one that does not.
_LATE = timedelta(seconds=20)
_AT_ONCE = 200
_OUR_SIGNALS = frozenset({signal.SIGTERM, signal.SIGKILL})
# Engines signal 30 s before a time limit, and some look at limits only now and then.
_SIGNAL_BEFORE = timedelta(seconds=60)


def failure_text(workload: Workload) -> str:
    """Return why a workload has failed, as a sentence."""
    why = workload.reason_text
    return why if why.endswith((".", "!", "?")) else f"{why}."


def kept_until_text(workload: Workload) -> str:
    """Return why a workload has failed, until when its task is kept, and what that costs."""
    rate = f"{dollars(open_price(workload))} per hour"
    if workload.nodes > 1:
        rate += f" for {workload.nodes} nodes"
    limit = _limit_of(workload)
    why = f", when its allocation in pool {limit.pool.name} reaches its time limit" if limit else ""
    until = f"Kept until {workload.kept_until:%H:%M} UTC{why} (costs {rate})."
    return f"{failure_text(workload)} {until}"


def _limit_of(workload: Workload) -> Allocation | None:
    """Return the allocation whose time limit ends a kept task, None if its own time does."""
    if not workload.pool_id or workload.kept_until is None:
        return None
    allocations = Allocation.objects.filter(workload=workload, epoch=workload.epoch)
    # The limit is stored anew, a little later or earlier, while the allocation runs.
    limited = allocations.filter(limit_at__lte=workload.kept_until + _LATE)
    return limited.select_related("pool").order_by("-pk").first()


def limited_until(workload: Workload, until: datetime) -> datetime:
    """Return until when a task can be kept: no longer than to the time limit of its allocation."""
    allocations = Allocation.objects.open().filter(workload=workload, epoch=workload.epoch)
    limit_at = allocations.values_list("limit_at", flat=True).first()
    return min(until, limit_at) if limit_at else until


def kept_text(workload: Workload, viewer: User) -> str:
    """Return the explanation of a failed workload whose task is kept, for one person."""
    if workload.status == WorkloadState.STOPPING:
        return f"Failed: {failure_text(workload)} It is kept no longer, and ends now."
    end = f"end it now with `slipway job cancel {workload.pk}`."
    if workload.submitted_by_id == viewer.pk or workload.submitted_by.is_service_account:
        way_in = f"Open a shell with `slipway job shell {workload.pk}`"
    else:
        way_in = f"{workload.submitted_by.display_name} can open a shell in it"
    return f"Failed: {kept_until_text(workload)} {way_in}; {end}"


def kept_end_text(lease: Lease, why: str) -> str:
    """Return the event of the end of a kept task: how long it was kept, the cost, and why."""
    assert lease.failed_at is not None  # noqa: S101 - it was kept
    ended_at = lease.ended_at or clock.now()
    minutes = max(0.0, (ended_at - lease.failed_at).total_seconds() / 60)
    steps = price_steps([lease.tier_id])
    cost = kept_cost(lease, steps.get(lease.tier_id, ()), until_ms=unix_ms(ended_at))
    limit = _limit_of(lease.workload)
    at_limit = ""
    if limit is not None and limit.limit_at and ended_at >= limit.limit_at - _SIGNAL_BEFORE:
        at_limit = f" The time limit of its allocation was {limit.limit_at:%H:%M} UTC."
    kept = f"Keeping it for {minutes:.1f} min cost {dollars(cost)}."
    subject = (
        f"Task {lease.index} is no longer kept" if lease.workload.nodes > 1 else "No longer kept"
    )
    return f"{subject}: {why.rstrip('.')}.{at_limit} {kept}"


def failed_rank(workload: Workload) -> int:
    """Return the rank in whose task a shell is opened by default: the failed one if it is kept."""
    leases = failed_leases(workload) if workload.is_kept else []
    if not leases:
        return 0
    cause = root_cause([task_end(lease) for lease in leases])
    lease = next(lease for lease in leases if lease.index == cause.index)
    first = lease.index * workload.procs
    ends = [end for end in lease.rank_ends if first <= end["rank"] < first + workload.procs]
    if lease.exit_code:
        failed = [end for end in ends if end["exit_code"] == lease.exit_code]
    else:
        # Ranks that lost the failed one were ended by us, with one of these signals.
        signals = [end for end in ends if end["signal"]]
        failed = [end for end in signals if end["signal"] not in _OUR_SIGNALS] or signals
    return int(failed[0]["rank"]) if failed else first


def end_overdue_tasks(timestamp: datetime) -> None:
    """End kept tasks whose time is over, and which their nodes have not ended."""
    overdue = Workload.objects.kept().filter(kept_until__lte=timestamp - _LATE)
    for workload_id in overdue.order_by("kept_until").values_list("pk", flat=True)[:_AT_ONCE]:
        with transaction.atomic():
            workload = locked(workload_id)
            if workload is not None and workload.is_kept:
                begin_stopping(
                    workload,
                    plan=StopOutcome.JUDGE,
                    reason=ReasonCode(workload.reason),
                    text="The time for which it is kept is over.",
                )


def kept_notifications(audience: Audience) -> Listed:
    """Return the failed workloads in the reader's projects whose tasks are kept, and cost money."""

    def notification(workload: Workload) -> Notification:
        project = audience.projects[workload.project_id]
        kind = kind_of(workload.kind)
        page = kind.page_of(workload.pk)
        return Notification(
            id=workload.pk,
            kind=NotificationKind.WORKLOAD,
            project=project,
            title=f"The {kind.noun} {workload.name} failed, and is kept",
            reason=kept_until_text(workload),
            next_step="Open a shell in it, or end it now.",
            route=page.name,
            arguments=(project.slug, *page.args),
            since=max(
                (lease.failed_at for lease in workload.leases.all() if lease.failed_at),
                default=workload.created_at,
            ),
            waits_for_you=workload.submitted_by_id == audience.principal.user.pk,
        )

    kept = Workload.objects.kept().filter(project__in=list(audience.projects))
    rows = kept.select_related("tier", "submitted_by").prefetch_related("leases", "tier__prices")
    return newest_of(rows, notification)
