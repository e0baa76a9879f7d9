"""Presenter of the bill of a pool beside the accounting of its engine."""

from portal.compute.models import Pool
from portal.core import clock
from portal.spend.windows import window_of
from portal.workloads.allocation_usage import latest_usages, usage_of_pool
from portal.workloads.models import AllocationUsage
from slipway.schemas.pools import AllocationUsageOut, PoolUsageOut


def present_pool_usage(pool: Pool, window: str) -> PoolUsageOut:
    """Return both bills of a pool for `today`, `7d`, `month` or a month. Raises InvalidInput."""
    period = window_of(window, clock.now())
    usage = usage_of_pool(pool, begin=period.begin, end=period.end)
    latest = latest_usages(pool, begin=period.begin, end=period.end)
    return PoolUsageOut(
        pool=pool.name,
        window=period.name,
        allocations=usage.allocations,
        accounted=usage.accounted,
        pending=usage.pending,
        unknown=usage.unknown,
        billed_s=usage.billed_ms / 1000,
        accounted_s=usage.accounted_s,
        billed_cpu_s=usage.billed_cpu_ms / 1000,
        accounted_cpu_s=usage.accounted_cpu_s,
        billed_nano_usd=usage.billed_nano_usd,
        accounted_nano_usd=usage.accounted_nano_usd,
        difference_nano_usd=usage.accounted_nano_usd - usage.billed_nano_usd,
        unaccounted_nano_usd=usage.unaccounted_nano_usd,
        latest=[_usage_out(row) for row in latest],
    )


def _usage_out(row: AllocationUsage) -> AllocationUsageOut:
    elapsed_s = row.elapsed_s * row.machines if row.elapsed_s and row.machines else row.elapsed_s
    return AllocationUsageOut(
        handle=row.allocation.shown_handle,
        account=row.allocation.account,
        ended_at=row.ended_at,
        is_pending=row.due_at is not None,
        billed_s=row.billed_ms / 1000,
        billed_nano_usd=row.billed_nano_usd,
        accounted_s=elapsed_s,
        accounted_cpu_s=row.cpu_s,
        accounted_nano_usd=row.accounted_nano_usd,
        resources=row.resources,
    )
