"""Presenters of workloads of any kind: labels of states, duration, cost, and the page of one."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Self

from django.db.models import Q
from django.http import HttpRequest
from django.urls import reverse

from portal.accounts.models import User
from portal.core import clock
from portal.web.base.dates import lasting
from portal.web.base.shortlist import Shortlist, shortlist
from portal.web.workloads.environment_builds import builds_of
from portal.web.workloads.logs import tail_of
from portal.workloads.costs import (
    cost_of_parts,
    kept_cost,
    steps_of_tier,
    unix_ms,
    workload_cost,
    workload_price,
)
from portal.workloads.explanations import Explainer
from portal.workloads.lifecycle import ENDS, WAITING
from portal.workloads.models import Lease, Preemption, Workload, WorkloadEvent
from portal.workloads.ports import kind_of
from slipway.schemas.workloads import WorkloadState

EVENTS_SHOWN = 200
PARTS = 50
MOVES = 20
_S = WorkloadState
_WORDS = {
    _S.SUBMITTED: ("held", "warn"),
    _S.ADMITTED: ("waiting", "warn"),
    _S.QUEUED: ("waiting", "warn"),
    _S.PLACED: ("starting", "strong"),
    _S.STARTING: ("starting", "strong"),
    _S.RUNNING: ("running", "strong"),
    _S.STOPPING: ("stopping", "warn"),
    _S.SUCCEEDED: ("succeeded", "ok"),
    _S.FAILED: ("failed", "bad"),
    _S.STOPPED: ("stopped", ""),
    _S.LOST: ("lost", "bad"),
}


@dataclass(frozen=True, kw_only=True)
class WorkloadStatus:
    """Status of a workload: its state in one word, an explanation, duration and cost so far.

    `started_at` is when it started to run, or when it was submitted if it has not started.
    `until` is None while the duration still grows. Money in nano-USD. `rate` is the present cost
    per hour. `kept_cost` is the part of the cost since the failure of a task that was kept.
    """

    workload: Workload
    label: str
    tone: str
    reason: str
    started_at: datetime
    until: datetime | None
    cost: int
    kept_cost: int
    rate: int
    step: int | None

    @classmethod
    def of(cls, workload: Workload, reason: str, **more: Any) -> Self:
        """Return the status of a workload, with its leases and `more` fields of a subclass."""
        label, tone = ("failed, kept", "bad") if workload.is_kept else _WORDS[workload.status]
        runs = any(lease.is_open for lease in workload.leases.all())
        waits = workload.status in WAITING
        return cls(
            workload=workload,
            label=label,
            tone=tone,
            reason=reason,
            started_at=workload.waits_since
            if waits
            else workload.started_at or workload.created_at,
            until=workload.ended_at,
            cost=workload_cost(workload, until_ms=unix_ms(clock.now())),
            kept_cost=_kept_cost(workload),
            rate=workload_price(workload) if runs else 0,
            step=step_of(present_leases(workload)),
            **more,
        )

    @property
    def has_ended(self) -> bool:
        """True if the workload has ended."""
        return self.workload.status in ENDS

    @property
    def is_active(self) -> bool:
        """True if the workload holds hardware now."""
        return not self.has_ended and self.workload.status not in WAITING

    @property
    def is_waiting(self) -> bool:
        """True if the workload waits in the queue."""
        return self.workload.status in WAITING

    @property
    def lasted(self) -> timedelta:
        """Duration of the run, or of the wait so far."""
        return (self.until or clock.now()) - self.started_at


def _kept_cost(workload: Workload) -> int:
    failed = [lease for lease in workload.leases.all() if lease.failed_at is not None]
    if not failed:
        return 0
    steps, now_ms = steps_of_tier(workload.tier), unix_ms(clock.now())
    return sum(kept_cost(lease, steps, until_ms=now_ms) for lease in failed)


def present_leases(workload: Workload) -> list[Lease]:
    """Return the leases of the latest attempt."""
    return [lease for lease in workload.leases.all() if lease.epoch == workload.epoch]


def step_of(leases: Sequence[Lease]) -> int | None:
    """Return the step that every task has reached, None if none was reported."""
    return min((lease.step for lease in leases if lease.step is not None), default=None)


def workload_page(status: WorkloadStatus, viewer: User) -> dict[str, Any]:
    """Collect what the page of a workload of any kind shows beside its log."""
    workload = status.workload
    leases = sorted(workload.leases.all(), key=lambda lease: (-lease.epoch, lease.index))
    places = [lease for lease in leases if lease.epoch == workload.epoch]
    events = WorkloadEvent.objects.filter(workload=workload).order_by("-pk")
    return {
        "it": status,
        "workload": workload,
        "events": shortlist(events, EVENTS_SHOWN),
        "places": places,
        "builds": builds_of(workload, places),
        "attempts": sorted({lease.epoch for lease in leases}, reverse=True),
        "ranks": range(workload.nodes * workload.procs),
        "took": _times_of(workload, leases),
        "parts": _parts_of(workload),
        "cost_with_parts": _cost_with_parts(status),
        "moves": _moves_of(workload, viewer),
        "full_rate": workload.full_price if status.rate else 0,
    }


@dataclass(frozen=True)
class MoveLine:
    """A preemption on a page: who was moved for whom. `page` is that of the other workload."""

    sentence: str
    at: datetime
    page: str


def _moves_of(workload: Workload, viewer: User) -> list[MoveLine]:
    """Return the newest preemptions of a workload, and those of others for it."""
    both_sides = Q(workload=workload) | Q(beneficiary=workload)
    moves = Preemption.objects.filter(both_sides).order_by("-pk")
    explainer = Explainer(viewer)
    lines = []
    for move in moves.select_related("workload__project", "beneficiary__project")[:MOVES]:
        is_moved = move.workload_id == workload.pk
        other = move.beneficiary if is_moved else move.workload
        name = explainer.name_of(other)
        sentence = (
            f"Attempt {move.attempt} was moved for {name}."
            if is_moved
            else f"{name[:1].upper()}{name[1:]} was moved for it."
        )
        page = ""
        if explainer.may_see(other):
            address = kind_of(other.kind).page_of(other.pk)
            page = reverse(address.name, args=(other.project.slug, *address.args))
        lines.append(MoveLine(sentence, move.created_at, page))
    return lines


def _parts_of(workload: Workload) -> Shortlist[WorkloadStatus]:
    """Return the newest parts of a workload."""
    parts = Workload.objects.parts_of(workload).select_related("tier").order_by("-pk")
    rows = parts.prefetch_related("leases__node", "tier__prices")
    shown = shortlist(rows, PARTS)
    return shown.replaced_by(WorkloadStatus.of(part, part.reason_text) for part in shown)


def _cost_with_parts(status: WorkloadStatus) -> int:
    return status.cost + cost_of_parts(status.workload, until_ms=unix_ms(clock.now()))


def log_section(workload: Workload, request: HttpRequest) -> dict[str, Any]:
    """Collect what the log section of a page shows, for a workload with its leases."""
    epochs = {lease.epoch for lease in workload.leases.all()}
    return tail_of(workload, request) | {
        "workload": workload,
        "attempts": sorted(epochs, reverse=True),
        "ranks": range(workload.nodes * workload.procs),
    }


def _times_of(workload: Workload, leases: list[Lease]) -> list[tuple[str, str]]:
    """Return the duration of each phase up to the first step."""
    came = workload.created_at
    first = min((lease.first_step_at for lease in leases if lease.first_step_at), default=None)
    placed = min((lease.granted_at for lease in leases), default=None)
    begun = min((lease.started_at for lease in leases if lease.started_at), default=None)
    steps = [("Placed", placed), ("Running", begun), ("First training step", first)]
    return [
        (label, _precise((timestamp - came).total_seconds()))
        for label, timestamp in steps
        if timestamp
    ]


def _precise(seconds: float) -> str:
    return f"{max(0.0, seconds):.2f} s" if seconds < 10 else lasting(seconds)
