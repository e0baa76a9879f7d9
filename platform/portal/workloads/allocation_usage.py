"""The bill of each ended allocation beside what its engine accounts for it.

Our side is known when the allocation ends. The accounting of an engine may follow later, or never:
it is asked for a day, ever less often. A difference changes no bill; it is for administrators.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog
from django.db.models import Count, F, Q, Sum

from portal.compute.engines import AccountingEngine, Engine, EngineAway, Usage
from portal.compute.models import Pool
from portal.core import clock
from portal.workloads.costs import MS_AN_HOUR, Steps, integral, lease_cost, price_steps, unix_ms
from portal.workloads.models import Allocation, AllocationUsage, Lease, Workload

log = structlog.get_logger(__name__)
_FIRST_AFTER = timedelta(seconds=5)
_GIVE_UP_AFTER = timedelta(days=1)
_BATCH = 20
_SHOWN = 50


@dataclass(frozen=True)
class PoolUsage:
    """The accounting of a pool over a period, of the allocations that ended in it.

    The other figures are of those that the engine has accounted. `pending` may still become known,
    and `unknown` will not.
    """

    allocations: int
    accounted: int
    pending: int
    billed_ms: int
    billed_cpu_ms: int
    billed_nano_usd: int
    accounted_s: int
    accounted_cpu_s: int
    accounted_nano_usd: int
    unaccounted_nano_usd: int

    @property
    def unknown(self) -> int:
        """The allocations that the engine has not accounted, and is not asked about any more."""
        return self.allocations - self.accounted - self.pending


def record_bill(allocation: Allocation, workload: Workload, *, ended_at: datetime) -> None:
    """Record our side of an allocation that has just ended, whose leases are closed.

    One that never reached its engine has no usage. Call it in the transaction of the end.
    """
    if not allocation.handle:
        return
    leases = _leases_of(allocation, workload)
    steps = price_steps({workload.tier_id}).get(workload.tier_id, ())
    spans = [(lease, _duration_ms(lease)) for lease in leases]
    AllocationUsage.objects.create(
        allocation=allocation,
        pool_id=allocation.pool_id,
        ended_at=ended_at,
        due_at=ended_at + _FIRST_AFTER,
        billed_ms=sum(span for _, span in spans),
        billed_cpu_ms=sum(span * lease.cpu_millis // 1000 for lease, span in spans),
        billed_nano_usd=sum(lease_cost(lease, steps, until_ms=0) for lease in leases),
    )


def is_usage_due(pool: Pool) -> bool:
    """Return True if the engine of a pool has an allocation to account for."""
    return AllocationUsage.objects.due(clock.now()).filter(pool=pool).exists()


def record_usage(pool: Pool, engine: Engine) -> None:
    """Ask the engine of a pool about the ended allocations that are due, and record its answer."""
    due = AllocationUsage.objects.due(clock.now()).filter(pool=pool).order_by("due_at")
    rows = list(due.select_related("allocation__workload__tier", "pool")[:_BATCH])
    if not rows:
        return
    if not isinstance(engine, AccountingEngine):
        AllocationUsage.objects.filter(pk__in=[row.pk for row in rows]).update(due_at=None)
        return
    try:
        usages = engine.usage([row.allocation.handle for row in rows])
    except EngineAway as problem:
        log.info("the accounting of a pool does not answer", pool=pool.name, problem=str(problem))
        usages = {}
    steps = price_steps({row.allocation.workload.tier_id for row in rows})
    for row in rows:
        usage = usages.get(row.allocation.handle)
        if usage is None:
            _postpone(row)
        else:
            _record(row, usage, steps.get(row.allocation.workload.tier_id, ()))


def usage_of_pool(pool: Pool, *, begin: datetime, end: datetime) -> PoolUsage:
    """Return the accounting of the allocations of a pool that ended in a period."""
    is_known = Q(accounted_at__isnull=False)
    rows = AllocationUsage.objects.filter(pool=pool, ended_at__gte=begin, ended_at__lt=end)
    sums = rows.aggregate(
        all_allocations=Count("pk"),
        all_accounted=Count("pk", filter=is_known),
        all_pending=Count("pk", filter=Q(due_at__isnull=False)),
        all_billed_ms=Sum("billed_ms", filter=is_known),
        all_billed_cpu_ms=Sum("billed_cpu_ms", filter=is_known),
        all_billed_nano_usd=Sum("billed_nano_usd", filter=is_known),
        all_accounted_s=Sum(F("elapsed_s") * F("machines"), filter=is_known),
        all_accounted_cpu_s=Sum("cpu_s", filter=is_known),
        all_accounted_nano_usd=Sum("accounted_nano_usd", filter=is_known),
        all_unaccounted_nano_usd=Sum("billed_nano_usd", filter=~is_known),
    )
    return PoolUsage(**{name.removeprefix("all_"): int(sums[name] or 0) for name in sums})


def latest_usages(pool: Pool, *, begin: datetime, end: datetime) -> list[AllocationUsage]:
    """Return the newest allocations of a pool that ended in a period, at most 50."""
    rows = AllocationUsage.objects.filter(pool=pool, ended_at__gte=begin, ended_at__lt=end)
    return list(rows.select_related("allocation").order_by("-ended_at", "-pk")[:_SHOWN])


def _leases_of(allocation: Allocation, workload: Workload) -> Sequence[Lease]:
    """Return the leases on the nodes of an allocation. Another may have had the same epoch."""
    leases = Lease.objects.filter(workload=workload, epoch=allocation.epoch, ended_at__isnull=False)
    return list(leases.filter(node__name__startswith=f"{allocation.name}-"))


def _duration_ms(lease: Lease) -> int:
    return unix_ms(lease.ended_at or lease.granted_at) - unix_ms(lease.granted_at)


def _record(row: AllocationUsage, usage: Usage, steps: Steps) -> None:
    AllocationUsage.objects.filter(pk=row.pk, accounted_at__isnull=True).update(
        accounted_at=clock.now(),
        due_at=None,
        elapsed_s=usage.elapsed_s,
        machines=usage.machines,
        cpu_s=usage.cpu_s,
        resources=usage.resources,
        accounted_nano_usd=_value_of(row, usage, steps),
    )


def _value_of(row: AllocationUsage, usage: Usage, steps: Steps) -> int:
    """Return the engine's time at the price of our bill, in nano-USD, rounded down."""
    workload = row.allocation.workload
    leases = _leases_of(row.allocation, workload)
    percent, discount = row.pool.price_percent, 0
    if leases:
        percent, discount = leases[0].price_percent, leases[0].discount_percent
    end_ms = unix_ms(row.ended_at)
    begin_ms = end_ms - usage.elapsed_s * 1000
    steps = steps or ((begin_ms, workload.tier.nano_usd_per_hour),)
    exact = integral(steps, begin_ms=begin_ms, end_ms=end_ms) * usage.machines
    return exact * percent * (100 - discount) // (10_000 * MS_AN_HOUR)


def _postpone(row: AllocationUsage) -> None:
    """Ask again after a quarter of the time since the end, or never after a day."""
    timestamp = clock.now()
    age = timestamp - row.ended_at
    due_at = timestamp + max(_FIRST_AFTER, age / 4) if age < _GIVE_UP_AFTER else None
    AllocationUsage.objects.filter(pk=row.pk, accounted_at__isnull=True).update(due_at=due_at)
