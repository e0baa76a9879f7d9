"""Reports of agents: each changes the database at most once, in whatever order they arrive.

Every kind of report is monotone (a task never goes back from running to starting, its end counts
once, a step never shrinks), so duplicates and late arrivals change nothing.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Q

from portal.compute.logs import stored_text
from portal.compute.models import Node
from portal.compute.resources import memory_text
from portal.core import clock
from portal.workloads.completion import (
    advance_workload,
    begin_stopping,
    close_lease,
    has_own_failure,
    keep_failed,
    notify_nodes,
)
from portal.workloads.gangs import gang_members, note_connections
from portal.workloads.kept_tasks import kept_end_text, kept_until_text, limited_until
from portal.workloads.lifecycle import LeaseState, StopOutcome, lease_sources
from portal.workloads.models import Lease, Workload, WorkloadEvent
from portal.workloads.ports import kind_of, obstacle_to_keeping
from portal.workloads.specs import RunSpec
from portal.workloads.transitions import locked, move
from slipway.schemas.agent import ReportsAnswer, TaskKey, TaskReport
from slipway.schemas.truncation import shorten
from slipway.schemas.workloads import ReasonCode, WorkloadState

_LONGEST_PAST = timedelta(days=30)
# Ends that the portal itself has declared: later reports are out of date.
_DECLARED = frozenset({ReasonCode.NODE_LOST, ReasonCode.START_FAILED})
# Ends that somebody asked for, or that a task does not come to by itself.
_NOT_FAILED = frozenset(
    {
        *(ReasonCode.COMPLETED, ReasonCode.USER, ReasonCode.BUDGET, ReasonCode.IDLE),
        *(ReasonCode.MAX_LIFETIME, ReasonCode.EARLY_STOP, ReasonCode.PREEMPTED),
        *(ReasonCode.FENCED, ReasonCode.NODE_LOST, ReasonCode.PEER_FAILED),
    }
)
_STARTING = frozenset({WorkloadState.PLACED, WorkloadState.STARTING})
_RUNS_AGAIN = "Ending the failed task, which runs again."
Key = tuple[str, int]


def accept_reports(
    *, node: Node, reports: Sequence[TaskReport], sent_unix_ms: int | None = None
) -> ReportsAnswer:
    """Accept reports. Those of tasks that do not belong to this node are returned as stale."""
    received = clock.now()
    stale: list[Key] = []
    accepted = 0
    for key, group in _by_task(reports).items():
        if _accept(node, key, group, Clock(received, sent_unix_ms)):
            accepted += len(group)
        else:
            stale.append(key)
    return ReportsAnswer(
        accepted=accepted,
        stale=[TaskKey(task_id=task_id, epoch=epoch) for task_id, epoch in stale],
    )


class Clock:
    """Maps a node's clock to ours: it was `sent` there when it was `received` here."""

    def __init__(self, received: datetime, sent_unix_ms: int | None) -> None:
        self._received = received
        now_ms = int(received.timestamp() * 1000)
        self._behind_ms = now_ms - sent_unix_ms if sent_unix_ms is not None else 0

    def to_portal_time(self, at_unix_ms: int) -> datetime:
        """Convert a node's time to ours, never later than when the report arrived."""
        now_ms = self._received.timestamp() * 1000
        least = now_ms - _LONGEST_PAST.total_seconds() * 1000
        mapped = min(max(at_unix_ms + self._behind_ms, least), now_ms)
        return min(datetime.fromtimestamp(mapped / 1000, UTC), self._received)


def _by_task(reports: Iterable[TaskReport]) -> dict[Key, list[TaskReport]]:
    groups: dict[Key, list[TaskReport]] = {}
    for report in reports:
        groups.setdefault((report.task_id, report.epoch), []).append(report)
    return groups


@transaction.atomic
def _accept(node: Node, key: Key, reports: list[TaskReport], times: Clock) -> bool:
    """Apply the reports of one task. Returns False if they are stale."""
    leases = Lease.objects.filter(task_id=key[0], epoch=key[1], node=node)
    workload_id = leases.values_list("workload_id", flat=True).first()
    workload = locked(workload_id) if workload_id else None
    lease = leases.select_for_update(of=("self",), no_key=True).first()
    if workload is None or lease is None:
        return False
    if not lease.is_open:
        return lease.reason not in _DECLARED
    for report in sorted(reports, key=lambda report: report.sequence):
        _apply(workload, lease, report, times)
    return True


def _apply(workload: Workload, lease: Lease, report: TaskReport, times: Clock) -> None:
    if not lease.is_open:
        return
    at = max(times.to_portal_time(report.at_unix_ms), lease.granted_at)
    if report.kind == "starting":
        _starting(workload, lease, report)
    elif report.kind == "running":
        _running(workload, lease, report, at)
    elif report.kind == "rendezvous":
        _rendezvous(workload, lease, report)
    elif report.kind == "progress":
        _progress(workload, lease, report, at)
    elif report.kind == "failed":
        _failed(workload, lease, report, at)
    else:
        _ended(workload, lease, report, at)


def _advance(lease: Lease, target: LeaseState, **changes: Any) -> bool:
    movable = Lease.objects.filter(pk=lease.pk, state__in=lease_sources(target))
    if not movable.update(state=target, **changes):
        return False
    lease.state = target
    return True


def _starting(workload: Workload, lease: Lease, report: TaskReport) -> None:
    message = shorten(report.message, 2000)
    Lease.objects.open().filter(pk=lease.pk).exclude(state=LeaseState.RUNNING).update(
        message=message
    )
    _advance(lease, LeaseState.STARTING)
    if message:
        _record_event(lease, report, "starting", message)
    if _is_current(workload, lease) and workload.status == WorkloadState.PLACED:
        move(
            workload,
            WorkloadState.STARTING,
            kind="starting",
            message="The node agent is starting it.",
        )


def _running(workload: Workload, lease: Lease, report: TaskReport, at: datetime) -> None:
    if _advance(lease, LeaseState.RUNNING, started_at=at, warm=report.warm, message=""):
        warm = {True: " from a warm process", False: " cold", None: ""}[report.warm]
        _record_event(
            lease, report, "task_running", report.message or f"Task {lease.index} is running{warm}."
        )
        if not lease.address and workload.nodes > 1 and _is_current(workload, lease):
            # An agent of an earlier version reports no address. The others must not wait for it.
            _wake_complete_gang(workload)
    if not _is_current(workload, lease) or workload.status not in _STARTING:
        return
    waiting = Lease.objects.of_epoch(workload).filter(
        state__in=[LeaseState.GRANTED, LeaseState.STARTING]
    )
    if not waiting.exists():
        _begin_running(workload, at)


def _begin_running(workload: Workload, at: datetime) -> None:
    started = workload.started_at or at
    move(workload, WorkloadState.RUNNING, kind="running", message="Running.", started_at=started)


def _rendezvous(workload: Workload, lease: Lease, report: TaskReport) -> None:
    """Record the address of a task, of task 0 also the rendezvous. The first report counts."""
    if not _is_current(workload, lease):
        return
    if report.rendezvous is not None and lease.index == 0:
        unknown = Workload.objects.filter(pk=workload.pk, epoch=lease.epoch, rendezvous_port=0)
        if unknown.update(
            rendezvous_address=report.rendezvous.address,
            rendezvous_port=report.rendezvous.port,
            rendezvous_agent_store=report.rendezvous.agent_store,
        ):
            notify_nodes(workload, but_index=0)
    member = report.member
    # Every rank of the task has one port. A list of any other length is no agent's of ours.
    if member is None or workload.nodes == 1 or len(member.ports) != workload.procs:
        return
    unknown_lease = Lease.objects.open().filter(pk=lease.pk, address="")
    if unknown_lease.update(address=member.address, ports=member.ports):
        lease.address = member.address
        _wake_complete_gang(workload)


def _wake_complete_gang(workload: Workload) -> None:
    """Wake the agents of a gang once the addresses of all its tasks are known."""
    if gang_members([workload])[workload.pk] is not None:
        notify_nodes(workload)


def _progress(workload: Workload, lease: Lease, report: TaskReport, at: datetime) -> None:
    if _is_current(workload, lease):
        keep = kind_of(workload.kind).handle_report
        line = keep(workload_id=workload.pk, attempt=lease.epoch, report=report, at=at)
        if line:
            _record_event(lease, report, "progress", line)
        if report.ranks_connected is not None and workload.nodes * workload.procs > 1:
            note_connections(workload, lease, connected=report.ranks_connected)
    if report.step is None:
        return
    further = Lease.objects.open().filter(Q(step__isnull=True) | Q(step__lt=report.step))
    if not further.filter(pk=lease.pk).update(step=report.step, active_at=clock.now()):
        return
    lease.step = report.step
    first = Lease.objects.filter(pk=lease.pk, first_step_at__isnull=True)
    if first.update(first_step_at=at) and lease.index == 0:
        waited_s = max(0.0, (at - workload.waits_since).total_seconds())
        _record_event(lease, report, "first_step", f"First training step after {waited_s:.2f} s.")


def _failed(workload: Workload, lease: Lease, report: TaskReport, at: datetime) -> None:
    """Keep a task that has failed for good, if its submitter wants that, and with it its gang."""
    keep_s = RunSpec.model_validate(workload.spec).keep_failed_s
    reason = report.reason or ReasonCode.EXIT
    # One that has lost its peers may report it before the one that has failed.
    is_victim = reason == ReasonCode.PEER_FAILED and workload.nodes > 1
    is_ignored = reason in _NOT_FAILED and not is_victim and not workload.is_kept
    if not keep_s or not _is_current(workload, lease) or is_ignored:
        return
    if not is_victim and not workload.is_kept and _runs_again(workload, reason):
        # Its end counts as its failure, and queues the next attempt.
        begin_stopping(workload, plan=StopOutcome.JUDGE, reason=reason, text=_RUNS_AGAIN)
        return
    if workload.status in _STARTING:
        # Ranks start once all tasks of a gang are ready, and not all have reported it yet.
        _begin_running(workload, at)
    is_first = not workload.is_kept
    if is_first and workload.status == WorkloadState.RUNNING:
        obstacle = obstacle_to_keeping(workload.pk)
        if obstacle:
            begin_stopping(workload, plan=StopOutcome.JUDGE, reason=reason, text=obstacle)
            return
    until = limited_until(workload, at + timedelta(seconds=keep_s))
    if keep_failed(workload, lease, at=at, until=until, reason=reason, **_end_of(reason, report)):
        text = f"Task {lease.index} is kept, too: {lease.message}"
        if is_first:
            text = f"Failed: {kept_until_text(workload)}"
        _record_event(lease, report, "kept", text)
        _end_if_it_runs_again(workload)


def _end_if_it_runs_again(workload: Workload) -> None:
    """End the kept tasks of a gang once it is known that its failure is one to try again after."""
    if workload.nodes == 1:
        return
    leases = list(Lease.objects.of_epoch(workload))
    is_known = has_own_failure(leases) or all(it.failed_at or not it.is_open for it in leases)
    reason = ReasonCode(workload.reason)
    if is_known and _runs_again(workload, reason):
        begin_stopping(workload, plan=StopOutcome.JUDGE, reason=reason, text=_RUNS_AGAIN)


def _runs_again(workload: Workload, reason: ReasonCode) -> bool:
    rule = workload.retry_rule
    return rule.allows(reason, failures=workload.failures + 1, losses=workload.losses)


def _ended(workload: Workload, lease: Lease, report: TaskReport, at: datetime) -> None:
    reason = report.reason
    if reason is None:
        reason = ReasonCode.COMPLETED if report.exit_code == 0 else ReasonCode.EXIT
    if close_lease(lease, at=at, reason=reason, **_end_of(reason, report)):
        message = report.message or reason.value.replace("_", " ")
        text = f"Task {lease.index} ended: {message}"
        if lease.failed_at is not None:
            text = kept_end_text(lease, report.kept_end or message)
        _record_event(lease, report, "task_ended", text)
        if _is_current(workload, lease):
            advance_workload(workload)


def _end_of(reason: ReasonCode, report: TaskReport) -> dict[str, Any]:
    """Return the columns of a lease that say how its task has ended."""
    return {
        "message": report.message or _memory_note(reason, report),
        "exit_code": report.exit_code,
        "rank_ends": [end.model_dump() for end in report.ranks],
        "memory_peak_bytes": report.memory_peak_bytes,
        "memory_limit_bytes": report.memory_limit_bytes,
        "cpu_seconds": report.cpu_seconds,
        "log_tail": stored_text(report.log_tail, limit=16_384),
    }


def _memory_note(reason: ReasonCode, report: TaskReport) -> str:
    if reason != ReasonCode.OUT_OF_MEMORY or not report.memory_limit_bytes:
        return ""
    limit = memory_text(report.memory_limit_bytes)
    if not report.memory_peak_bytes:
        return f"Ran out of memory (its limit is {limit})."
    return f"Ran out of memory ({memory_text(report.memory_peak_bytes)} of {limit})."


def _is_current(workload: Workload, lease: Lease) -> bool:
    return workload.epoch == lease.epoch


def _record_event(lease: Lease, report: TaskReport, kind: str, message: str) -> None:
    """Add the report to the history, once even if it is repeated."""
    WorkloadEvent.objects.bulk_create(
        [
            WorkloadEvent(
                workload_id=lease.workload_id,
                attempt=lease.epoch,
                kind=kind,
                message=shorten(message, 2000),
                task_id=lease.task_id,
                sequence=report.sequence,
            )
        ],
        ignore_conflicts=True,
    )
