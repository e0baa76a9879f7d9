"""Closing of leases, and the next state of their workload.

Everything here runs inside a transaction that holds the lock of the workload's row.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from portal.compute.lifecycle import LEASE
from portal.compute.models import Environment, Node, Tier
from portal.core import clock
from portal.workloads.failure_hints import EXPLAINED_BY_TEXT, FailureContext, failure_hint
from portal.workloads.fairness import charge
from portal.workloads.lifecycle import ACTIVE, LeaseState, StopOutcome, end_of_stop
from portal.workloads.models import Lease, Share, Workload
from portal.workloads.next_steps import next_step_of
from portal.workloads.retries import LOSSES, TaskEnd, root_cause
from portal.workloads.signals import LeaseClosed, lease_closed
from portal.workloads.transitions import add_event, announce, move
from slipway.schemas.truncation import shorten
from slipway.schemas.workloads import ReasonCode, WorkloadState

_ASKED_FOR = frozenset(
    {
        *(ReasonCode.USER, ReasonCode.BUDGET, ReasonCode.EARLY_STOP),
        *(ReasonCode.IDLE, ReasonCode.MAX_LIFETIME),
    }
)
# Ends of kept tasks that another task has brought about, or nothing.
_NOT_OWN = frozenset({ReasonCode.PEER_FAILED, ReasonCode.COMPLETED})
_NEVER_RAN = frozenset({ReasonCode.START_FAILED, ReasonCode.ENVIRONMENT_FAILED})


def close_lease(
    lease: Lease, *, at: datetime, reason: ReasonCode, message: str, **details: Any
) -> bool:
    """Close a lease once. Returns whether it was open.

    `at` is when it ended, in our time, clamped between its grant and now. A start that failed
    has cost nothing: its lease has no length. A task that was kept ends as it has failed, whatever
    its node says now.
    """
    if lease.failed_at is not None:
        reason, message, details = ReasonCode(lease.reason), lease.message, {}
    at = min(max(at, lease.granted_at), max(clock.now(), lease.granted_at))
    if reason in _NEVER_RAN and lease.state != LeaseState.RUNNING:
        at = lease.granted_at
    closed = Lease.objects.open().filter(pk=lease.pk)
    changes = {"message": shorten(message, 2000), "reason": reason, **details}
    if not closed.update(state=LeaseState.ENDED, ended_at=at, **changes):
        return False
    lease.state, lease.ended_at = LeaseState.ENDED, at
    for column, value in changes.items():
        setattr(lease, column, value)
    Node.objects.release(lease.node_id, amount=lease.amount)
    _charge_shares(lease, at)
    lease_closed.send_on_commit(LeaseClosed(lease.pk, lease.workload_id, lease.project_id))
    return True


def _charge_shares(lease: Lease, at: datetime) -> None:
    """Subtract the lease from the running totals, and charge what is not charged yet."""
    at_s = at.timestamp()
    seconds = max(0.0, at_s - lease.charged_to_ms / 1000)
    for share in Share.objects.of(lease.project_id, lease.team_id).select_for_update(no_key=True):
        score = charge(share.score, cpu_seconds=seconds * lease.fair_millis / 1000, at_s=at_s)
        Share.objects.filter(pk=share.pk).update(
            cpu_millis=share.cpu_millis - lease.cpu_millis,
            gpus=share.gpus - lease.gpus,
            fair_millis=share.fair_millis - lease.fair_millis,
            score=score,
        )


def begin_stopping(
    workload: Workload, *, plan: StopOutcome, reason: ReasonCode, text: str, next_step: str = ""
) -> bool:
    """Order every task of an active workload to stop. Returns whether anything changed.

    An order to end for good replaces a plan to run again. Nothing replaces an order to end. What
    has failed and is kept ends as failed, whatever ends it.
    """
    if workload.is_kept:
        return _end_kept(workload, text)
    details = {
        "plan": plan,
        "reason": reason,
        "reason_text": shorten(text, 500),
        "next_step": shorten(next_step, 300),
    }
    if workload.status == WorkloadState.STOPPING:
        if plan != StopOutcome.STOP or workload.plan == StopOutcome.STOP:
            return False
        same = Workload.objects.filter(
            pk=workload.pk, state=WorkloadState.STOPPING, epoch=workload.epoch
        )
        if not same.exclude(plan=StopOutcome.STOP).update(**details):
            return False
        for column, value in details.items():
            setattr(workload, column, value)
        add_event(workload, kind="stopping", message=text)
        announce(workload)
    elif not move(workload, WorkloadState.STOPPING, kind="stopping", message=text, **details):
        return False
    notify_nodes(workload)
    return True


def _end_kept(workload: Workload, text: str) -> bool:
    if workload.status == WorkloadState.STOPPING:
        return False
    judged = {"plan": StopOutcome.JUDGE}
    if not move(workload, WorkloadState.STOPPING, kind="stopping", message=text, **judged):
        return False
    notify_nodes(workload)
    return True


def keep_failed(
    workload: Workload,
    lease: Lease,
    *,
    at: datetime,
    until: datetime,
    reason: ReasonCode,
    message: str,
    **details: Any,
) -> bool:
    """Store the verdict on a task that has failed and stays for shells. Returns whether it is new.

    Its lease stays open: it costs, ends and is lost like any other. The state of the workload says
    so, too, and everything else says that it has failed. In a gang the tasks that fail later may
    change the verdict, and never the time.
    """
    if workload.status != WorkloadState.RUNNING:
        return False
    changes = {"message": shorten(message, 2000), "reason": reason, **details}
    unjudged = Lease.objects.open().filter(pk=lease.pk, failed_at__isnull=True)
    if not unjudged.update(failed_at=at, **changes):
        return False
    for column, value in {**changes, "failed_at": at}.items():
        setattr(lease, column, value)
    leases = failed_leases(workload)
    cause = root_cause([task_end(each) for each in leases])
    log_tail = next(each.log_tail for each in leases if each.index == cause.index)
    text = describe_end(cause, workload.nodes)
    hint = _hint(workload, cause, log_tail)
    judged = {
        "kept_until": workload.kept_until or until,
        "reason": cause.reason,
        "reason_text": shorten(text, 500),
        "next_step": _next_step(workload, cause.reason, text, hint),
        "exit_code": cause.exit_code,
        "log_tail": log_tail,
        "silent_since": None,
    }
    Workload.objects.filter(pk=workload.pk, epoch=workload.epoch).update(**judged)
    for column, value in judged.items():
        setattr(workload, column, value)
    announce(workload)
    if workload.nodes > 1:
        notify_nodes(workload)
    return True


def failed_leases(workload: Workload) -> list[Lease]:
    """Return the leases of the tasks that have failed and were kept, in the order of tasks."""
    failed = Lease.objects.of_epoch(workload).filter(failed_at__isnull=False)
    return list(failed.order_by("index"))


def has_own_failure(leases: Iterable[Lease]) -> bool:
    """Return whether a task was kept because of its own failure, and not of that of another."""
    return any(lease.failed_at and lease.reason not in _NOT_OWN for lease in leases)


def notify_nodes(workload: Workload, *, but_index: int | None = None) -> None:
    """Notify the agents that run tasks of this workload to poll again."""
    leases = Lease.objects.of_epoch(workload).open()
    if but_index is not None:
        leases = leases.exclude(index=but_index)
    Node.objects.wake(leases.values_list("node_id", flat=True))


def advance_workload(workload: Workload) -> None:
    """Carry the workload on after some of its leases have closed."""
    if workload.status not in ACTIVE:
        return
    leases = list(Lease.objects.of_epoch(workload).order_by("index"))
    ends = [task_end(lease) for lease in leases if not lease.is_open]
    if len(ends) == len(leases):
        _conclude(workload, leases, ends)
    elif workload.status != WorkloadState.STOPPING:
        bad = [end for end in ends if end.reason != ReasonCode.COMPLETED]
        stays = workload.is_kept and has_own_failure(lease for lease in leases if lease.is_open)
        if bad and not stays:
            cause = root_cause(bad)
            begin_stopping(
                workload,
                plan=StopOutcome.JUDGE,
                reason=cause.reason,
                text=f"Stopping the other tasks: {describe_end(cause, workload.nodes)}",
            )


def task_end(lease: Lease) -> TaskEnd:
    """Return the end of a task that has ended, or has failed and was kept."""
    ended_at = lease.failed_at or lease.ended_at
    assert ended_at is not None  # noqa: S101 - others do not come here
    return TaskEnd(lease.index, ReasonCode(lease.reason), ended_at, lease.exit_code, lease.message)


def describe_end(end: TaskEnd, tasks: int) -> str:
    """Describe the end of a task in a sentence."""
    who = f"task {end.index} " if tasks > 1 else ""
    if end.message:
        return f"{who}ended: {end.message}" if who else end.message
    words = {
        ReasonCode.COMPLETED: "succeeded",
        ReasonCode.EXIT: f"ended with exit status {end.exit_code}",
        ReasonCode.SIGNAL: "was killed by a signal",
        ReasonCode.NODE_LOST: "was lost with its node",
        ReasonCode.FENCED: "was stopped because its node could not reach the portal",
        ReasonCode.PEER_FAILED: "was stopped because another task failed",
        ReasonCode.OUT_OF_MEMORY: "ran out of memory",
        ReasonCode.START_FAILED: "could not be started",
    }
    message = words.get(end.reason, f"ended: {end.reason.value.replace('_', ' ')}")
    return f"{who}{message}" if who else message[0].upper() + message[1:]


def _conclude(workload: Workload, leases: list[Lease], ends: list[TaskEnd]) -> None:
    """Every task has ended: the workload ends, or goes back into the queue."""
    failed = [lease for lease in leases if lease.failed_at is not None]
    if has_own_failure(failed):
        # The others may have ended since then, which is not why it has failed.
        ends = [task_end(lease) for lease in failed]
    cause = root_cause(ends)
    tail = next((lease.log_tail for lease in leases if lease.index == cause.index), "")
    details: dict[str, Any] = {
        "exit_code": cause.exit_code,
        "log_tail": tail,
        "ended_at": max(lease.ended_at for lease in leases if lease.ended_at),
    }
    sentence = describe_end(cause, workload.nodes)
    if all(end.reason == ReasonCode.COMPLETED for end in ends):
        _end(workload, WorkloadState.SUCCEEDED, ReasonCode.COMPLETED, "Completed.", **details)
    elif workload.plan == StopOutcome.STOP:
        reason = ReasonCode(workload.reason)
        _end(workload, end_of_stop(reason), reason, workload.reason_text, **details)
    elif workload.plan == StopOutcome.REQUEUE or cause.reason == ReasonCode.PREEMPTED:
        requeue(workload, ReasonCode.PREEMPTED, workload.reason_text or sentence)
    elif cause.reason in _ASKED_FOR:
        _end(workload, WorkloadState.STOPPED, cause.reason, sentence, **details)
    else:
        _retry_or_fail(workload, cause, sentence, details)


def _retry_or_fail(
    workload: Workload, cause: TaskEnd, message: str, details: dict[str, Any]
) -> None:
    """An end nobody asked for: run again if the rule of the workload allows it."""
    lost = cause.reason in LOSSES
    failures = workload.failures + (not lost)
    losses = workload.losses + lost
    counts = {"failures": failures, "losses": losses}
    if workload.retry_rule.allows(cause.reason, failures=failures, losses=losses):
        requeue(workload, cause.reason, f"Running again: {message}", **counts)
        return
    target = WorkloadState.LOST if lost else WorkloadState.FAILED
    hint = _hint(workload, cause, details["log_tail"])
    tried = f" (after {workload.epoch} attempts)" if workload.epoch > 1 else ""
    _end(workload, target, cause.reason, f"{message}{tried}", hint=hint, **details, **counts)


def _hint(workload: Workload, cause: TaskEnd, log_tail: str) -> str:
    """Return the next step that the text of the error suggests, or "" for the general one."""
    if cause.reason not in EXPLAINED_BY_TEXT:
        return ""
    with_gpus = Tier.objects.offered().filter(gpus__gt=0)
    context = FailureContext(
        project=workload.project.slug,
        network=workload.network_rule,
        gpus=workload.gpus,
        gpu_tier=with_gpus.values_list("slug", flat=True).first(),
    )
    return failure_hint(cause.message, log_tail, context)


def _end(
    workload: Workload,
    target: WorkloadState,
    reason: ReasonCode,
    text: str,
    *,
    hint: str = "",
    **details: Any,
) -> None:
    move(
        workload,
        target,
        kind=target.value,
        message=text,
        plan=StopOutcome.NONE,
        reason=reason,
        reason_text=shorten(text, 500),
        next_step=workload.next_step or _next_step(workload, reason, text, hint),
        **details,
    )


def _next_step(workload: Workload, reason: ReasonCode, text: str, hint: str) -> str:
    step = hint or next_step_of(reason, text, *_packages_of(workload, reason))
    return shorten(step, 300)


def _packages_of(workload: Workload, reason: ReasonCode) -> tuple[str, str]:
    """Return requirements and packages of conda, where the next step depends on them."""
    if reason != ReasonCode.IMPORT_ERROR or not workload.environment:
        return "", ""
    environments = Environment.objects.filter(digest=workload.environment)
    return environments.values_list("requirements", "conda").first() or ("", "")


def requeue(workload: Workload, reason: ReasonCode, text: str, **details: Any) -> None:
    """Requeue the workload, in its old position. Every lease must be closed."""
    move(
        workload,
        WorkloadState.QUEUED,
        kind="queued",
        message=text,
        plan=StopOutcome.NONE,
        reason=reason,
        reason_text=shorten(text, 500),
        next_step="",
        waits_since=clock.now(),
        deadline_at=None,
        kept_until=None,
        rendezvous_address="",
        rendezvous_port=0,
        rendezvous_agent_store=False,
        **details,
    )


def lose_lease(lease: Lease) -> bool:
    """Close an expired lease as of its expiry. Returns whether it was open."""
    heard = lease.expires_at - LEASE
    return close_lease(
        lease,
        at=lease.expires_at,
        reason=ReasonCode.NODE_LOST,
        message=f"Node {lease.node.name} sent its last heartbeat at {heard:%H:%M:%S} UTC.",
    )
