"""Cost of a lease: the exact integral of its tier's price over time, rounded down once.

The percentage of a pool and the discount of preemptible work count before the rounding, as they
were when the lease began.

Every figure of a workload's cost, on its own page and on the pages of spend, comes from here.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from portal.compute.models import Tier, TierPrice
from portal.core import clock
from portal.workloads.models import Lease, Workload
from slipway.schemas.money import charged

MS_AN_HOUR = 3_600_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)

# Prices of one resource: (start in Unix milliseconds, nano-USD an hour), oldest first. The oldest
# price also applies before its start.
Steps = tuple[tuple[int, int], ...]


def unix_ms(timestamp: datetime) -> int:
    """Return a time as whole Unix milliseconds, rounded down, without a float on the way."""
    return (timestamp - _EPOCH) // _MS


def steps_of(prices: Iterable[TierPrice]) -> Steps:
    """Return the prices of one tier as steps."""
    return tuple(
        sorted((unix_ms(price.effective_from), price.nano_usd_per_hour) for price in prices)
    )


def price_steps(tiers: Iterable[str]) -> Mapping[str, Steps]:
    """Read the prices of some tiers (ids) at once."""
    values: dict[str, list[TierPrice]] = {}
    for price in TierPrice.objects.filter(tier__in=set(tiers)):
        values.setdefault(price.tier_id, []).append(price)
    return {tier: steps_of(prices) for tier, prices in values.items()}


def steps_of_tier(tier: Tier) -> Steps:
    """Return the steps of a tier whose prices may have been fetched ahead."""
    return steps_of(tier.prices.all())


def price_at(steps: Steps, at_ms: int) -> int:
    """Return the price at a time in nano-USD per hour, 0 without any price."""
    price = steps[0][1] if steps else 0
    for from_ms, nano_usd in steps:
        if from_ms > at_ms:
            break
        price = nano_usd
    return price


def integral(steps: Steps, *, begin_ms: int, end_ms: int) -> int:
    """Return price times milliseconds over a span, in nano-USD an hour: exact."""
    total = 0
    at = begin_ms
    for from_ms, _ in steps:
        if at < from_ms < end_ms:
            total += price_at(steps, at) * (from_ms - at)
            at = from_ms
    return total + price_at(steps, at) * max(0, end_ms - at)


def lease_cost(lease: Lease, steps: Steps, *, until_ms: int) -> int:
    """Return the cost of a lease up to a time, or in all once it has ended, in nano-USD.

    A lease of a tier without a history of prices counts at the price it was granted at.
    """
    begin_ms = unix_ms(lease.granted_at)
    end_ms = until_ms if lease.ended_at is None else unix_ms(lease.ended_at)
    return cost_between(lease, steps, begin_ms=begin_ms, end_ms=max(begin_ms, end_ms))


def cost_between(lease: Lease, steps: Steps, *, begin_ms: int, end_ms: int) -> int:
    """Return the cost of a lease over a span, at its own terms, in nano-USD, rounded down once."""
    steps = steps or ((begin_ms, lease.nano_usd_per_hour),)
    exact = integral(steps, begin_ms=begin_ms, end_ms=end_ms)
    percent = lease.price_percent * (100 - lease.discount_percent)
    return exact * percent // (10_000 * MS_AN_HOUR)


def kept_cost(lease: Lease, steps: Steps, *, until_ms: int) -> int:
    """Return what a task has cost since it failed, while it was kept, in nano-USD."""
    if lease.failed_at is None:
        return 0
    begin_ms = unix_ms(lease.failed_at)
    end_ms = until_ms if lease.ended_at is None else unix_ms(lease.ended_at)
    return cost_between(lease, steps, begin_ms=begin_ms, end_ms=max(begin_ms, end_ms))


def lease_price(lease: Lease, steps: Steps, *, at_ms: int) -> int:
    """Return the hourly cost of a lease at a time, in nano-USD."""
    full = price_at(steps, at_ms) if steps else lease.nano_usd_per_hour
    return charged(full, percent=lease.price_percent, discount=lease.discount_percent)


def workload_cost(workload: Workload, *, until_ms: int) -> int:
    """Return what the leases of a workload have cost so far, to the millisecond, in nano-USD.

    Each lease is rounded down by itself, as on the pages of spend.
    """
    leases = list(workload.leases.all())
    steps = steps_of_tier(workload.tier) if leases else ()
    return sum(lease_cost(lease, steps, until_ms=until_ms) for lease in leases)


def cost_of_parts(workload: Workload, *, until_ms: int) -> int:
    """Return what the workloads within this one have cost so far, in nano-USD, without itself.

    Of an outermost workload all levels count, of another one the parts directly below it.
    """
    within = Workload.objects.filter(root=workload)
    if workload.root_id is not None:
        within = Workload.objects.parts_of(workload)
    return cost_of_workloads(within.values("pk"), until_ms=until_ms)


def cost_of_workloads(ids: Iterable[Any], *, until_ms: int) -> int:
    """Return what the workloads with these ids (a list or a query) have cost, in nano-USD."""
    leases = list(Lease.objects.filter(workload__in=ids))
    steps = price_steps({lease.tier_id for lease in leases}) if leases else {}
    return sum(
        lease_cost(lease, steps.get(lease.tier_id, ()), until_ms=until_ms) for lease in leases
    )


def open_price(workload: Workload) -> int:
    """Return what the tasks of a workload that have not ended cost now, in nano-USD an hour."""
    steps = steps_of_tier(workload.tier)
    now_ms = unix_ms(clock.now())
    leases = [lease for lease in workload.leases.all() if lease.epoch == workload.epoch]
    return sum(lease_price(lease, steps, at_ms=now_ms) for lease in leases if lease.is_open)


def workload_price(workload: Workload) -> int:
    """Return nano-USD an hour: what it costs now, or cost when it ended last."""
    leases = [lease for lease in workload.leases.all() if lease.epoch == workload.epoch]
    if not leases:
        return workload.price
    steps = steps_of_tier(workload.tier)
    now_ms = unix_ms(clock.now())
    return sum(
        lease_price(lease, steps, at_ms=unix_ms(lease.ended_at) if lease.ended_at else now_ms)
        for lease in leases
    )
