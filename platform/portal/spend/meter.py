"""The meter: converts leases and holdings to lines of the ledger.

F(t) is the exact integral of price over time, rounded down to whole nano-dollars. A line for a span
is the difference of F at its ends, so lines of a source add up to F at its end for any sequence of
ticks. The cursor on the source's own row is moved by compare-and-set in the transaction that writes
the lines: any number of meters may run, be repeated, or die at any point.
"""

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import TypeVar

from django.db import transaction
from django.db.models import Q, QuerySet

from portal.core import clock
from portal.spend.ledger import HOUR_MS, LedgerEntry, Source, post
from portal.spend.models import Holding
from portal.spend.models.ledger import KIND_CAPACITY, TAG
from portal.spend.rates import Amounts, Rates
from portal.workloads.costs import Steps, cost_between, price_steps, unix_ms
from portal.workloads.models import Lease, Workload
from portal.workloads.ports import kind_of

_BATCH = 200
_BUDGET_S = 20.0
_Row = TypeVar("_Row", Lease, Holding)
Cost = Callable[[int], int]


@dataclass(frozen=True, slots=True)
class UnbilledSpan:
    """Unbilled span of a source: from its cursor to `to_ms`."""

    of: Source
    held: Amounts
    cost: Cost
    changes: tuple[int, ...]
    from_ms: int
    to_ms: int
    billed_nano_usd: int


def meter(timestamp: datetime | None = None) -> int:
    """Write every due line, for at most about 20 s. Return the number of sources moved.

    An open source is written at full hours. The rest is computed live by queries.
    """
    now_ms = unix_ms(timestamp or clock.now())
    deadline = time.monotonic() + _BUDGET_S
    moved = 0
    for step in (_meter_leases, _meter_holdings):
        after = ""
        while time.monotonic() < deadline:
            after, count = step(now_ms, after)
            moved += count
            if not after:
                break
    return moved


def _meter_leases(now_ms: int, after: str) -> tuple[str, int]:
    hour_ms = now_ms - now_ms % HOUR_MS
    hour = datetime.fromtimestamp(hour_ms / 1000, clock.now().tzinfo)
    is_due = Q(ended_at__isnull=False) | (
        Q(granted_at__lt=hour) & (Q(billed_to_ms__isnull=True) | Q(billed_to_ms__lt=hour_ms))
    )
    leases = unsettled_leases().filter(is_due, pk__gt=after).order_by("pk")
    rows = list(leases[:_BATCH])
    steps = price_steps({lease.tier_id for lease in rows})
    rates = Rates.read() if rows else Rates({})
    moved = _write(
        rows,
        lambda lease: unbilled_of_lease(lease, steps.get(lease.tier_id, ()), rates, hour_ms),
        _move_lease,
        rates,
    )
    return (rows[-1].pk if len(rows) == _BATCH else ""), moved


def _meter_holdings(now_ms: int, after: str) -> tuple[str, int]:
    hour_ms = now_ms - now_ms % HOUR_MS
    is_due = Q(end_ms__isnull=False) | Q(begin_ms__lt=hour_ms, billed_to_ms__lt=hour_ms)
    holdings = Holding.objects.filter(is_due, is_settled=False, pk__gt=after).order_by("pk")
    rows = list(holdings[:_BATCH])
    rates = Rates.read() if rows else Rates({})
    moved = _write(
        rows, lambda holding: unbilled_of_holding(holding, rates, hour_ms), _move_holding, rates
    )
    return (rows[-1].pk if len(rows) == _BATCH else ""), moved


def unsettled_leases() -> QuerySet[Lease]:
    """Return leases with cost that is not in the ledger yet, with only the columns needed."""
    leases = Lease.objects.filter(is_settled=False).select_related("workload")
    return leases.only(
        *("project_id", "team_id", "node_id", "tier_id"),
        *("nano_usd_per_hour", "price_percent", "discount_percent"),
        *("cpu_millis", "memory_bytes", "gpus", "granted_at", "ended_at"),
        *("billed_to_ms", "billed_nano_usd", "is_settled"),
        *("workload__kind", "workload__submitted_by_id", "workload__name", "workload__tags"),
        "workload__root_id",
    )


def unsettled_ids(projects: Collection[str] | None) -> list[str]:
    """Return the ids of those leases, of some projects or of all.

    They are few and have an index of their own. With the projects in the query as well, a planner
    may prefer the index over all leases there ever were.
    """
    lease = Lease.objects.filter(is_settled=False).values_list("pk", "project_id")
    return [pk for pk, project in lease if projects is None or project in projects]


def unbilled_of_lease(lease: Lease, steps: Steps, rates: Rates, hour_ms: int) -> UnbilledSpan:
    """Return the unbilled span of a lease, up to a full hour or its end."""
    begin_ms = unix_ms(lease.granted_at)
    steps = steps or ((begin_ms, lease.nano_usd_per_hour),)
    end_ms = max(begin_ms, hour_ms) if lease.ended_at is None else unix_ms(lease.ended_at)
    return UnbilledSpan(
        of=source_of(lease),
        held=Amounts(lease.cpu_millis, lease.memory_bytes, lease.gpus),
        cost=lambda at: cost_between(lease, steps, begin_ms=begin_ms, end_ms=at),
        changes=tuple(at for at, _ in steps),
        from_ms=begin_ms if lease.billed_to_ms is None else lease.billed_to_ms,
        to_ms=end_ms,
        billed_nano_usd=lease.billed_nano_usd,
    )


def source_of(lease: Lease) -> Source:
    """Return the cost source of a lease, whose workload must have been fetched with it."""
    return Source(
        source=lease.pk,
        kind=lease.workload.kind,
        project=lease.project_id,
        team=lease.team_id or "",
        person=lease.workload.submitted_by_id,
        tier=lease.tier_id,
        node=lease.node_id,
        workload=lease.workload_id,
        run=lease.workload.root_id or lease.workload_id,
        labels=labels_of(lease.workload),
    )


def labels_of(workload: Workload) -> tuple[tuple[str, str], ...]:
    """Return the labels by which the cost of a workload is summed."""
    rows = [(TAG, f"{name}={value}") for name, value in sorted(workload.tags.items())]
    grouping = kind_of(workload.kind).grouping
    if grouping is not None:
        rows.append((workload.kind, grouping.group_of(workload.name)))
    return tuple(rows)


def unbilled_of_holding(holding: Holding, rates: Rates, hour_ms: int) -> UnbilledSpan:
    """Return the unbilled span of a holding. Capacity has a value and costs no project anything."""
    held = Amounts(holding.cpu_millis, holding.memory_bytes, holding.gpus, holding.stored_bytes)
    is_capacity = holding.kind == KIND_CAPACITY
    begin_ms = holding.begin_ms
    return UnbilledSpan(
        of=Source(
            source=holding.pk,
            kind=holding.kind,
            project=holding.project,
            team=holding.team,
            tier="" if is_capacity else f"stored:{holding.what}",
            node=holding.node,
        ),
        held=held if is_capacity else Amounts(),
        cost=(lambda at: 0)
        if is_capacity
        else (lambda at: rates.floor(held, begin_ms=begin_ms, end_ms=at)),
        changes=(),
        from_ms=holding.billed_to_ms,
        to_ms=max(begin_ms, hour_ms) if holding.end_ms is None else holding.end_ms,
        billed_nano_usd=holding.billed_nano_usd,
    )


def entries_of(due: UnbilledSpan, rates: Rates) -> list[LedgerEntry]:
    """Return the lines of an unbilled span, cut at full hours and at changes of prices.

    When the source ended before its cursor, they are corrections of the excess. When a price became
    known late, a line of zero length corrects the sum.
    """
    first, last = sorted((due.from_ms, due.to_ms))
    is_back = due.to_ms < due.from_ms
    changes = {at for at in (*due.changes, *rates.moments) if first < at < last}
    hours = range(first - first % HOUR_MS + HOUR_MS, last, HOUR_MS)
    cuts = sorted({first, *hours, *changes, last}, reverse=is_back)
    written = due.billed_nano_usd
    entries = []
    for here, there in pairwise(cuts):
        total = due.cost(there)
        begin_ms, end_ms = min(here, there), max(here, there)
        value = _value(due, rates, begin_ms, end_ms, is_back=is_back)
        entries.append(LedgerEntry(due.of, begin_ms, end_ms, total - written, value, is_back))
        written = total
    if not entries and due.cost(last) != written:
        entries.append(LedgerEntry(due.of, last, last, due.cost(last) - written, 0, True))
    return entries


def _value(due: UnbilledSpan, rates: Rates, begin_ms: int, end_ms: int, *, is_back: bool) -> int:
    """Return the value of the node's resources over a span.

    Allocations are rounded down and capacity up, so that idle, their difference, is never negative.
    """
    rounds_up = (due.of.kind == KIND_CAPACITY) != is_back
    rounded = rates.ceiling if rounds_up else rates.floor
    value = rounded(due.held, begin_ms=begin_ms, end_ms=end_ms)
    return -value if is_back else value


def _write(
    rows: Sequence[_Row],
    due_of: Callable[[_Row], UnbilledSpan],
    move_cursor: Callable[[_Row, int, int], bool],
    rates: Rates,
) -> int:
    """Move the cursors that are still unchanged, and write their lines."""
    if not rows:
        return 0
    entries: list[LedgerEntry] = []
    moved = 0
    with transaction.atomic():
        for row in rows:
            due = due_of(row)
            written = entries_of(due, rates)
            billed = row.billed_nano_usd + sum(entry.nano_usd for entry in written)
            if move_cursor(row, due.to_ms, billed):
                entries += written
                moved += 1
        post(entries)
    return moved


def _move_lease(lease: Lease, to_ms: int, billed_nano_usd: int) -> bool:
    here = Lease.objects.filter(
        _equals("billed_to_ms", lease.billed_to_ms),
        _equals("ended_at", lease.ended_at),
        pk=lease.pk,
        is_settled=False,
        billed_nano_usd=lease.billed_nano_usd,
    )
    return bool(
        here.update(
            billed_to_ms=to_ms,
            billed_nano_usd=billed_nano_usd,
            is_settled=lease.ended_at is not None,
        )
    )


def _move_holding(holding: Holding, to_ms: int, billed_nano_usd: int) -> bool:
    here = Holding.objects.filter(
        _equals("end_ms", holding.end_ms),
        pk=holding.pk,
        is_settled=False,
        billed_to_ms=holding.billed_to_ms,
        billed_nano_usd=holding.billed_nano_usd,
    )
    return bool(
        here.update(
            billed_to_ms=to_ms,
            billed_nano_usd=billed_nano_usd,
            is_settled=holding.end_ms is not None,
        )
    )


def _equals(column: str, value: datetime | int | None) -> Q:
    return Q(**{f"{column}__isnull": True}) if value is None else Q(**{column: value})
