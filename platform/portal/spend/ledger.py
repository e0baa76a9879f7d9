"""Writes of the ledger: lines, and in the same transaction the sums that views read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

from django.db import connections, models, router

from portal.core.bulk_insert import insert_rows
from portal.spend.models import (
    DayTotal,
    LabelTotal,
    LedgerVersion,
    Line,
    MonthTotal,
    NodeDay,
    Split,
    WorkloadTotal,
)
from portal.spend.models.ledger import KIND_CAPACITY

HOUR_MS = 3_600_000
# Dimensions of the sums of a project.
PARTS = ("person", "tier", "kind")
_COLUMNS = (
    "source",
    "kind",
    "project",
    "team",
    "person",
    "tier",
    "node",
    "workload",
    "begin_ms",
    "end_ms",
    "nano_usd",
    "value_nano_usd",
    "is_correction",
)


@dataclass(frozen=True, slots=True)
class Source:
    """Source of cost: the part of a line that is the same for all lines of a lease."""

    source: str
    kind: str
    project: str = ""
    team: str = ""
    person: str = ""
    tier: str = ""
    node: str = ""
    workload: str = ""
    # The workload whose run it is: the outermost one that `workload` is a part of, or itself.
    run: str = ""
    # (part, key) of each `LabelTotal` that its lines count in.
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """A line to be written, see `Line`."""

    of: Source
    begin_ms: int
    end_ms: int
    nano_usd: int
    value_nano_usd: int = 0
    is_correction: bool = False

    @property
    def day(self) -> date:
        """The day it belongs to, in UTC."""
        return day_of(self.begin_ms)


def day_of(at_ms: int) -> date:
    """Return the UTC date of a Unix time in ms."""
    return datetime.fromtimestamp(at_ms // 1000, UTC).date()


def month_of(day: date) -> str:
    """Return a month in the ledger's format: `2026-11`."""
    return f"{day:%Y-%m}"


def post(entries: Sequence[LedgerEntry]) -> None:
    """Insert lines and update the sums, in the transaction that moves the sources' cursors."""
    if not entries:
        return
    LedgerVersion.objects.raise_version()
    insert_rows(Line, _COLUMNS, [_row(entry) for entry in entries])
    months: dict[tuple[Any, ...], list[int]] = {}
    days: dict[tuple[Any, ...], list[int]] = {}
    splits: dict[tuple[Any, ...], list[int]] = {}
    labels: dict[tuple[Any, ...], list[int]] = {}
    workloads: dict[tuple[Any, ...], list[int]] = {}
    nodes: dict[tuple[Any, ...], list[int]] = {}
    for entry in entries:
        of, day = entry.of, entry.day
        month = month_of(day)
        who = of.project, of.team, of.person, of.tier, of.kind
        if of.kind != KIND_CAPACITY:
            _add(months, (month, *who), entry.nano_usd)
            _add(days, (day, *who), entry.nano_usd)
            for period in (month, day.isoformat()):
                for part in PARTS:
                    key = period, of.project, part, getattr(of, part)
                    _add(splits, key, entry.nano_usd)
        for period in (month, day.isoformat()):
            for label in of.labels:
                _add(labels, (period, of.project, *label), entry.nano_usd)
        if of.run:
            for period in (month, day.isoformat()):
                whole = period, of.project, of.run, of.person, of.tier, of.kind
                _add(workloads, whole, entry.nano_usd)
        if of.node:
            is_capacity = of.kind == KIND_CAPACITY
            value = entry.value_nano_usd
            _add(nodes, (day, of.node), value if is_capacity else 0, 0 if is_capacity else value)
    _count(MonthTotal, MonthTotal.KEYS, ("nano_usd",), months)
    _count(DayTotal, DayTotal.KEYS, ("nano_usd",), days)
    _count(Split, Split.KEYS, ("nano_usd",), splits)
    _count(LabelTotal, LabelTotal.KEYS, ("nano_usd",), labels)
    _count(WorkloadTotal, WorkloadTotal.KEYS, ("nano_usd",), workloads)
    _count(NodeDay, NodeDay.KEYS, ("capacity_nano_usd", "held_nano_usd"), nodes)


def _row(entry: LedgerEntry) -> tuple[Any, ...]:
    of = entry.of
    who = of.source, of.kind, of.project, of.team, of.person, of.tier, of.node, of.workload
    span = entry.begin_ms, entry.end_ms
    return (*who, *span, entry.nano_usd, entry.value_nano_usd, entry.is_correction)


def _add(sums: dict[tuple[Any, ...], list[int]], key: tuple[Any, ...], *amounts: int) -> None:
    items = sums.setdefault(key, [0] * len(amounts))
    for at, amount in enumerate(amounts):
        items[at] += amount


def _count(
    model: type[models.Model],
    keys: Sequence[str],
    sums: Sequence[str],
    values: Mapping[tuple[Any, ...], Sequence[int]],
) -> None:
    """Upsert sums in one statement, in an order that all writers share."""
    if not values:
        return
    connection = connections[router.db_for_write(model)]
    quote = connection.ops.quote_name
    table = quote(model._meta.db_table)  # noqa: SLF001  (Django's public way to a table's name)
    columns = ", ".join(quote(name) for name in (*keys, *sums))
    places = ", ".join(["%s"] * (len(keys) + len(sums)))
    added = ", ".join(
        f"{quote(name)} = {table}.{quote(name)} + excluded.{quote(name)}" for name in sums
    )
    sql = (
        f"INSERT INTO {table} ({columns}) VALUES ({places}) "  # noqa: S608  (names of our models)
        f"ON CONFLICT ({', '.join(quote(name) for name in keys)}) DO UPDATE SET {added}"
    )
    with connection.cursor() as cursor:
        cursor.executemany(sql, [[*key, *values[key]] for key in sorted(values)])
