"""Queries of spend: sums of the ledger plus, without a write, the cost not in the ledger yet."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any

from django.db import transaction
from django.db.models import Q, QuerySet, Sum

from portal.core import clock
from portal.spend.cost_by_tag import Label, add_live, labels_of, top_by_cost
from portal.spend.ledger import LedgerEntry, Source, month_of
from portal.spend.meter import (
    entries_of,
    source_of,
    unbilled_of_holding,
    unbilled_of_lease,
    unsettled_ids,
    unsettled_leases,
)
from portal.spend.models import Holding, LedgerVersion, MonthTotal, Split, WorkloadTotal
from portal.spend.models.ledger import KIND_CAPACITY, KIND_STORAGE
from portal.spend.rates import Amounts, Rates
from portal.spend.windows import Window
from portal.workloads.costs import Steps, lease_price, price_steps, unix_ms
from portal.workloads.models import Lease

RUNS_SHOWN = 50
_READS = 3


@dataclass(frozen=True)
class Scope:
    """Scope of a spend query: some projects (ids), one team, one person, or everything."""

    projects: tuple[str, ...] | None = None
    team: str = ""
    person: str = ""

    def sums_filter(self) -> Q:
        """Return the filter for a table of the ledger."""
        value = Q() if self.projects is None else Q(project__in=self.projects)
        return value & self._owner_filter("team", "person")

    def leases_filter(self) -> Q:
        """Return the filter for leases whose projects are chosen already."""
        return self._owner_filter("team_id", "workload__submitted_by_id")

    def _owner_filter(self, team: str, person: str) -> Q:
        value = Q(**{team: self.team}) if self.team else Q()
        return value & Q(**{person: self.person}) if self.person else value


@dataclass(frozen=True, slots=True)
class RunningCost:
    """Current lease or stored bytes, and the cost per hour."""

    of: Source
    nano_usd_per_hour: int
    stored_bytes: int = 0


@dataclass(frozen=True)
class LiveCost:
    """Cost not in the ledger yet, as the lines that would be written now, and running work."""

    entries: list[LedgerEntry]
    running: list[RunningCost]

    @property
    def nano_usd_per_hour(self) -> int:
        """Cost per hour of everything that runs and is stored."""
        return sum(running_cost.nano_usd_per_hour for running_cost in self.running)


@dataclass
class SpendBreakdown:
    """Cost of a window, split in every way. Each split adds up to `nano_usd`."""

    window: Window
    as_of: datetime
    nano_usd_per_hour: int = 0
    by_project: Counter[str] = field(default_factory=Counter)
    by_person: Counter[str] = field(default_factory=Counter)
    by_tier: Counter[str] = field(default_factory=Counter)
    by_kind: Counter[str] = field(default_factory=Counter)
    by_day: Counter[date] = field(default_factory=Counter)
    by_run: Counter[str] = field(default_factory=Counter)
    runs: dict[str, Source] = field(default_factory=dict)
    run_rates: Counter[str] = field(default_factory=Counter)
    by_label: Counter[Label] = field(default_factory=Counter)
    stored: list[RunningCost] = field(default_factory=list)

    @property
    def nano_usd(self) -> int:
        """Total cost."""
        return sum(self.by_kind.values())

    def count(self, of: Source, nano_usd: int) -> None:
        """Add an amount to every split."""
        self.by_project[of.project] += nano_usd
        self.by_person[of.person] += nano_usd
        self.by_tier[of.tier] += nano_usd
        self.by_kind[of.kind] += nano_usd


def compute_live_cost(scope: Scope, timestamp: datetime) -> LiveCost:
    """Compute the cost not in the ledger yet, up to a given time, without writing."""
    now_ms = unix_ms(timestamp)
    projects = None if scope.projects is None else frozenset(scope.projects)
    ids = unsettled_ids(projects)
    leases = list(unsettled_leases().filter(scope.leases_filter(), pk__in=ids)) if ids else []
    steps = price_steps({lease.tier_id for lease in leases}) if leases else {}
    rates = Rates.read()
    entries: list[LedgerEntry] = []
    running: list[RunningCost] = []
    for lease in leases:
        prices = steps.get(lease.tier_id, ())
        entries += entries_of(unbilled_of_lease(lease, prices, rates, now_ms), rates)
        if lease.ended_at is None:
            running.append(_running(lease, prices, now_ms))
    if not scope.person:
        for holding in Holding.objects.filter(scope.sums_filter(), is_settled=False):
            if holding.kind == KIND_CAPACITY:
                continue
            due = unbilled_of_holding(holding, rates, now_ms)
            entries += entries_of(due, rates)
            if holding.end_ms is None:
                held = Amounts(stored_bytes=holding.stored_bytes)
                running.append(
                    RunningCost(due.of, rates.an_hour(held, at_ms=now_ms), holding.stored_bytes)
                )
    return LiveCost(entries, running)


def _running(lease: Lease, steps: Steps, now_ms: int) -> RunningCost:
    return RunningCost(source_of(lease), lease_price(lease, steps, at_ms=now_ms))


def _unmoved(read: Callable[[], Any]) -> Any:
    """Read sums and live cost consistently, retrying when the meter has written in between.

    If it writes all the time, the last read locks the ledger, so that the meter waits.
    """
    versions = LedgerVersion.objects
    for _ in range(_READS):
        before = versions.current()
        unmoved = read()
        if versions.current() == before:
            return unmoved
    with transaction.atomic():
        versions.select_for_update(no_key=True).filter(pk=1).first()
        return read()


def spent_in(scope: Scope, *, month: str, timestamp: datetime) -> int:
    """Return the cost of a month (`2026-11`) so far, or of all time for an empty one."""

    def read() -> int:
        sums: QuerySet[Any] = MonthTotal.objects.filter(scope.sums_filter())
        if month and not scope.team and not scope.person:
            sums = Split.objects.filter(_project_filter(scope), period=month, part="kind")
        elif month:
            sums = sums.filter(month=month)
        written = int(sums.aggregate(all=Sum("nano_usd"))["all"] or 0)
        live = compute_live_cost(scope, timestamp).entries
        return written + sum(
            entry.nano_usd for entry in live if not month or month_of(entry.day) == month
        )

    spent: int = _unmoved(read)
    return spent


def spending_of(scope: Scope, window: Window, *, with_runs: bool = True) -> SpendBreakdown:
    """Return the cost of a window for some projects, live to the millisecond.

    The scope names projects, or is everything.
    """
    timestamp = clock.now()

    def read() -> SpendBreakdown:
        spend_breakdown = SpendBreakdown(window, timestamp)
        _add_sums(spend_breakdown, scope)
        if with_runs:
            _add_runs(spend_breakdown, scope)
            spend_breakdown.by_label = top_by_cost(_project_filter(scope), _periods(window))
        _add_live(spend_breakdown, scope, compute_live_cost(scope, timestamp), with_runs=with_runs)
        return spend_breakdown

    spending: SpendBreakdown = _unmoved(read)
    return spending


def _periods(window: Window) -> list[str]:
    """Return the periods of the ledger that make up a window."""
    return [window.month] if window.month else [day.isoformat() for day in window.days]


def _project_filter(scope: Scope) -> Q:
    return Q() if scope.projects is None else Q(project__in=scope.projects)


def _add_sums(spend_breakdown: SpendBreakdown, scope: Scope) -> None:
    window = spend_breakdown.window
    splits = Split.objects.filter(_project_filter(scope))
    days = splits.filter(period__in=[day.isoformat() for day in window.days], part="kind")
    for day, nano_usd in _grouped(days, "period"):
        spend_breakdown.by_day[date.fromisoformat(day)] += nano_usd
    split = {
        "person": spend_breakdown.by_person,
        "tier": spend_breakdown.by_tier,
        "kind": spend_breakdown.by_kind,
    }
    for part, key, nano_usd in _grouped(splits.filter(period__in=_periods(window)), "part", "key"):
        split[part][key] += nano_usd
    kinds = splits.filter(period__in=_periods(window), part="kind")
    for project, nano_usd in _grouped(kinds, "project"):
        spend_breakdown.by_project[project] += nano_usd


def _grouped(rows: QuerySet[Any], *names: str) -> "QuerySet[Any, Any]":
    grouped: QuerySet[Any, Any] = rows.order_by().values_list(*names).annotate(all=Sum("nano_usd"))
    return grouped


def _add_runs(spend_breakdown: SpendBreakdown, scope: Scope) -> None:
    names = ("workload", "kind", "project", "person", "tier")
    periods = _periods(spend_breakdown.window)
    sums = WorkloadTotal.objects.filter(_project_filter(scope), period__in=periods)
    if len(periods) > 1:
        # Two queries: pick the top rows first, then load their names. Avoids sorting wide rows.
        dear = _grouped(sums, "project", "workload").order_by("-all")[:RUNS_SHOWN]
        ids = [workload for _, workload, _ in dear]
        rows = _grouped(WorkloadTotal.objects.filter(workload__in=ids, period__in=periods), *names)
    else:
        rows = sums.order_by("-nano_usd").values_list(*names, "nano_usd")[:RUNS_SHOWN]
    for workload, kind, project, person, tier, nano_usd in rows:
        spend_breakdown.by_run[workload] += nano_usd
        spend_breakdown.runs[workload] = Source(
            "", kind, project, person=person, tier=tier, workload=workload, run=workload
        )


def _add_live(
    spend_breakdown: SpendBreakdown, scope: Scope, live: LiveCost, *, with_runs: bool
) -> None:
    window = spend_breakdown.window
    late: Counter[str] = Counter()
    late_labels: Counter[Label] = Counter()
    for entry in live.entries:
        if not window.begin_ms <= entry.begin_ms < window.end_ms:
            continue
        of = entry.of
        spend_breakdown.count(of, entry.nano_usd)
        spend_breakdown.by_day[entry.day] += entry.nano_usd
        if of.run and with_runs:
            late[of.run] += entry.nano_usd
            spend_breakdown.runs.setdefault(of.run, of)
            for label in labels_of(of):
                late_labels[label] += entry.nano_usd
    spend_breakdown.nano_usd_per_hour = live.nano_usd_per_hour
    if with_runs:
        spend_breakdown.stored = [
            running_cost for running_cost in live.running if running_cost.of.kind == KIND_STORAGE
        ]
    for running in live.running:
        spend_breakdown.run_rates[running.of.run] += running.nano_usd_per_hour
    if late:
        _add_written(
            spend_breakdown,
            [running_cost for running_cost in late if running_cost not in spend_breakdown.by_run],
        )
        spend_breakdown.by_run.update(late)
    if late_labels:
        add_live(spend_breakdown.by_label, late_labels, _project_filter(scope), _periods(window))


def _add_written(spend_breakdown: SpendBreakdown, workloads: Sequence[str]) -> None:
    """Add the ledger's cost of runs that are not among the top but run now."""
    # No filter by project: with many projects and workloads a planner may try each pair.
    rows = WorkloadTotal.objects.filter(
        workload__in=workloads, period__in=_periods(spend_breakdown.window)
    )
    for workload, nano_usd in _grouped(rows, "workload"):
        spend_breakdown.by_run[workload] += nano_usd
