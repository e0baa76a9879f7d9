"""Timed corrections: expired leases, deadlines, starts that never came, holds, drains.

Each step handles a bounded number of rows, each workload in a transaction of its own, and may be
repeated or interrupted anywhere.
"""

from datetime import datetime, timedelta

import structlog
from django.db import transaction
from django.db.models import F, Sum

from portal.compute.lifecycle import NodeState
from portal.compute.models import Node
from portal.compute.services.nodes import has_steady_heartbeats
from portal.core import clock
from portal.core.errors import SlipwayError
from portal.workloads.completion import advance_workload, begin_stopping, close_lease, lose_lease
from portal.workloads.fairness import charge
from portal.workloads.kept_tasks import end_overdue_tasks, kept_end_text
from portal.workloads.lifecycle import START_WITHIN, LeaseState, StopOutcome
from portal.workloads.models import Lease, SchedulerTurn, Share, UsageSample, Workload
from portal.workloads.ports import AdmissionDeferred, admission, kind_of
from portal.workloads.services.submission import enqueue, request_of
from portal.workloads.transitions import add_event, locked, move
from slipway.schemas.truncation import shorten
from slipway.schemas.workloads import ReasonCode, WorkloadState

log = structlog.get_logger(__name__)
_AT_ONCE = 200
_CHARGE_EVERY = timedelta(minutes=1)
_KEEP_SAMPLES = timedelta(days=14)
_TURN = 1


def reconcile() -> None:
    """Run all corrections that are due."""
    timestamp = clock.now()
    close_expired_leases(timestamp)
    close_unstarted_leases(timestamp)
    stop_overdue(timestamp)
    end_overdue_tasks(timestamp)
    retry_admission(timestamp)
    requeue_from_draining_nodes()
    charge_running(timestamp)


def close_expired_leases(timestamp: datetime) -> None:
    """Close expired leases. Their workloads run again elsewhere, or are lost."""
    leases = Lease.objects.expired(timestamp).order_by("expires_at").select_related("node")
    for lease in leases[:_AT_ONCE]:
        if lease.keeps_on_fence and _may_serve_on(lease.node, timestamp):
            continue
        with transaction.atomic():
            workload = locked(lease.workload_id)
            again = (
                Lease.objects.expired(timestamp)
                .filter(pk=lease.pk)
                .select_for_update(of=("self",), no_key=True)
            )
            current = again.select_related("node").first()
            if workload is not None and current is not None and lose_lease(current):
                if current.failed_at is not None:
                    text = kept_end_text(current, f"Node {current.node.name} was lost")
                    add_event(workload, kind="task_ended", message=text)
                advance_workload(workload)


def _may_serve_on(node: Node, timestamp: datetime) -> bool:
    """Return True if a node is silent because the portal was away: its replicas are not lost."""
    return node.is_quiet(timestamp) and not has_steady_heartbeats(other_than=node)


def close_unstarted_leases(timestamp: datetime) -> None:
    """Close leases whose agent beats but never began on them, neither to start nor to stop."""
    late = Lease.objects.filter(state=LeaseState.GRANTED, granted_at__lte=timestamp - START_WITHIN)
    for lease in late.order_by("granted_at")[:_AT_ONCE]:
        with transaction.atomic():
            workload = locked(lease.workload_id)
            current = late.filter(pk=lease.pk).select_for_update(of=("self",), no_key=True).first()
            if workload is not None and current is not None:
                close_lease(
                    current,
                    at=current.granted_at,
                    reason=ReasonCode.START_FAILED,
                    message="The node did not start it in time.",
                )
                advance_workload(workload)


def stop_overdue(timestamp: datetime) -> None:
    """Stop what has reached its maximum lifetime."""
    overdue = Workload.objects.active().filter(deadline_at__lte=timestamp)
    overdue = overdue.exclude(state=WorkloadState.STOPPING)
    for workload_id in overdue.order_by("deadline_at").values_list("pk", flat=True)[:_AT_ONCE]:
        with transaction.atomic():
            workload = locked(workload_id)
            if workload is None or workload.deadline_at is None or workload.deadline_at > timestamp:
                continue
            if workload.status in (WorkloadState.STOPPING, WorkloadState.QUEUED):
                continue
            begin_stopping(
                workload,
                plan=StopOutcome.STOP,
                reason=ReasonCode.MAX_LIFETIME,
                text=f"It reached its maximum lifetime of {workload.max_lifetime_s} s.",
            )


def retry_admission(timestamp: datetime) -> None:
    """Ask the admission again about workloads it holds."""
    held = Workload.objects.filter(state=WorkloadState.SUBMITTED).order_by("pk")
    for workload_id in held.values_list("pk", flat=True)[:_AT_ONCE]:
        with transaction.atomic():
            workload = locked(workload_id)
            if workload is not None and workload.status == WorkloadState.SUBMITTED:
                _request_admission(workload, timestamp)


def _request_admission(workload: Workload, timestamp: datetime) -> None:
    try:
        with transaction.atomic():
            answer = admission().decide(request_of(workload))
    except SlipwayError as error:
        move(
            workload,
            WorkloadState.STOPPED,
            kind="stopped",
            message=error.message,
            reason=ReasonCode.BUDGET,
            reason_text=shorten(error.message, 500),
            next_step=shorten(error.next_step or "", 300),
            ended_at=timestamp,
            hold="",
        )
        return
    if isinstance(answer, AdmissionDeferred):
        Workload.objects.filter(pk=workload.pk, state=WorkloadState.SUBMITTED).update(
            hold=shorten(answer.reason, 300)
        )
    else:
        enqueue(workload)


def requeue_from_draining_nodes() -> None:
    """Requeue what can be moved from nodes that are being drained."""
    drained = Node.objects.filter(state=NodeState.DRAINING, tasks__gt=0)
    leases = Lease.objects.open().filter(node__in=drained).select_related("workload", "node")
    for lease in leases.exclude(workload__state=WorkloadState.STOPPING).order_by("pk")[:_AT_ONCE]:
        if not kind_of(lease.workload.kind).moves_when_drained:
            continue
        with transaction.atomic():
            workload = locked(lease.workload_id)
            if workload is not None and workload.epoch == lease.epoch:
                stop_and_requeue(workload, f"Node {lease.node.name} is being drained.")


def stop_and_requeue(workload: Workload, why: str) -> None:
    """Stop an active workload so that it queues again."""
    active = {WorkloadState.PLACED, WorkloadState.STARTING, WorkloadState.RUNNING}
    if workload.status in active:
        begin_stopping(workload, plan=StopOutcome.REQUEUE, reason=ReasonCode.PREEMPTED, text=why)


def charge_running(timestamp: datetime) -> None:
    """Charge the fair share for what runs on, about once a minute."""
    now_ms = int(timestamp.timestamp() * 1000)
    with transaction.atomic():
        turn, _ = SchedulerTurn.objects.select_for_update(no_key=True).get_or_create(pk=_TURN)
        if turn.charged_at is not None and turn.charged_at > timestamp - _CHARGE_EVERY:
            return
        SchedulerTurn.objects.filter(pk=_TURN).update(charged_at=timestamp)
        running = Lease.objects.open().filter(charged_to_ms__lt=now_ms)
        ids = list(
            running.select_for_update(of=("self",), no_key=True)
            .order_by("pk")
            .values_list("pk", flat=True)
        )
        owed = (
            Lease.objects.filter(pk__in=ids)
            .values("project_id", "team_id")
            .annotate(
                weight=Sum("fair_millis"), weighted=Sum(F("fair_millis") * F("charged_to_ms"))
            )
        )
        for row in owed:
            millis = row["weight"] * now_ms - row["weighted"]
            _charge(row["project_id"], row["team_id"], millis / 1_000_000, timestamp)
        Lease.objects.filter(pk__in=ids).update(charged_to_ms=now_ms)


def _charge(project_id: str, team_id: str | None, cpu_seconds: float, timestamp: datetime) -> None:
    at_s = timestamp.timestamp()
    for share in Share.objects.of(project_id, team_id).select_for_update(no_key=True):
        score = charge(share.score, cpu_seconds=cpu_seconds, at_s=at_s)
        Share.objects.filter(pk=share.pk).update(score=score)


def delete_old_samples() -> int:
    """Delete samples of use from weeks ago and return their number."""
    deleted, _ = UsageSample.objects.filter(at__lt=clock.now() - _KEEP_SAMPLES).delete()
    return deleted
