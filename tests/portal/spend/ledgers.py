"""Leases for tests of the ledger, and what they must have cost, worked out another way."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Any

from django.db import connection

from portal.accounts.models import Project, User
from portal.compute.models import Node, Tier, TierPrice
from portal.spend.meter import labels_of
from portal.spend.models import DayTotal, LabelTotal, Line, MonthTotal, Split, WorkloadTotal
from portal.workloads.models import Lease, Task, Workload
from tests.portal.workloads.crashes import Crashed, crashing

MS = timedelta(milliseconds=1)
HOUR = timedelta(hours=1)


def make_workload(project: Project, by: User, tier: Tier, at: datetime, **changes: Any) -> Workload:
    """Make the row of a workload that runs, beside the ways of submitting one."""
    fields: dict[str, Any] = {
        "project": project,
        "team_id": project.team_id,
        "kind": "job",
        "name": "train",
        "submitted_by": by,
        "state": "running",
        "epoch": 1,
        "tier": tier,
        "cpu_millis": tier.cpu_millis,
        "memory_bytes": tier.memory_bytes,
        "spec": {},
        "waits_since": at,
    } | changes
    workload = Workload.objects.create(**fields)
    Task.objects.create(workload=workload, index=0)
    return workload


def make_lease(workload: Workload, node: Node, at: datetime, **changes: Any) -> Lease:
    """Grant a lease for the workload's first task."""
    fields: dict[str, Any] = {
        "task": workload.tasks.get(index=0),
        "workload": workload,
        "project_id": workload.project_id,
        "team_id": workload.team_id,
        "node": node,
        "tier_id": workload.tier_id,
        "nano_usd_per_hour": workload.tier.nano_usd_per_hour,
        "epoch": workload.epoch,
        "index": 0,
        "state": "running",
        "cpu_millis": workload.cpu_millis,
        "memory_bytes": workload.memory_bytes,
        "fair_millis": 1000,
        "charged_to_ms": 0,
        "granted_at": at,
        "expires_at": at + HOUR,
    } | changes
    return Lease.objects.create(**fields)


def close(lease: Lease, at: datetime) -> None:
    """End a lease as of a moment, which may lie behind what a meter has written."""
    ended = max(at, lease.granted_at)
    Lease.objects.open().filter(pk=lease.pk).update(state="ended", ended_at=ended)
    lease.refresh_from_db()


def owed(lease: Lease, until: datetime) -> int:
    """Return what a lease has cost by a moment or its end: prices times time, as fractions."""
    until = lease.ended_at or until
    prices = sorted(
        (_ms(at), price)
        for at, price in TierPrice.objects.filter(tier=lease.tier_id).values_list(
            "effective_from", "nano_usd_per_hour"
        )
    )
    total = Fraction(0)
    for at, (begin, price) in enumerate(prices):
        end = prices[at + 1][0] if at + 1 < len(prices) else _ms(until)
        begin = _ms(lease.granted_at) if at == 0 else max(begin, _ms(lease.granted_at))
        total += Fraction(price * max(0, min(end, _ms(until)) - begin), 3_600_000)
    return int(total)


def _ms(at: datetime) -> int:
    return (at - datetime(1970, 1, 1, tzinfo=at.tzinfo)) // MS


def written() -> Counter[str]:
    """Return what the lines say each source has cost."""
    totals: Counter[str] = Counter()
    for source, nano_usd in Line.objects.values_list("source", "nano_usd"):
        totals[source] += nano_usd
    return totals


def assert_sums_equal_lines() -> None:
    """Check every table of sums against the lines, group by group."""
    sums: dict[type[Any], Counter[tuple[Any, ...]]] = {
        model: Counter() for model in (MonthTotal, DayTotal, Split, WorkloadTotal, LabelTotal)
    }
    labels = {workload.pk: labels_of(workload) for workload in Workload.objects.all()}
    for line in Line.objects.exclude(kind="capacity"):
        day = datetime.fromtimestamp(line.begin_ms / 1000, line.made_at.tzinfo).date()
        month = f"{day:%Y-%m}"
        who = line.project, line.team, line.person, line.tier, line.kind
        sums[MonthTotal][month, *who] += line.nano_usd
        sums[DayTotal][day, *who] += line.nano_usd
        for period in (month, day.isoformat()):
            for part in ("person", "tier", "kind"):
                sums[Split][period, line.project, part, getattr(line, part)] += line.nano_usd
            for label in labels[line.workload] if line.workload else ():
                sums[LabelTotal][period, line.project, *label] += line.nano_usd
            if line.workload:
                run = line.project, line.workload, line.person, line.tier, line.kind
                sums[WorkloadTotal][period, *run] += line.nano_usd
    for model, expected in sums.items():
        rows = model.objects.values_list(*model.KEYS, "nano_usd")
        assert {tuple(key): nano for *key, nano in rows} == dict(expected)


@contextmanager
def dying(at: int | None) -> Iterator[None]:
    """Let the process die at a statement or commit, and go on as the next one would."""
    try:
        with crashing(at):
            yield
    except Crashed:
        pass


@contextmanager
def interrupted(at: int | None, by: Any) -> Iterator[None]:
    """Run something else, whole, just before the statement number `at`."""
    left = at

    def execute(run: Any, sql: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
        nonlocal left
        if left is not None:
            left -= 1
            if left < 0:
                left = None
                by()
        return run(sql, params, many, context)

    with connection.execute_wrapper(execute):
        yield
