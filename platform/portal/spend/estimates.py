"""Cost estimates before a start, from similar workloads of the past."""

from dataclasses import dataclass

from django.db.models import Exists, OuterRef, Sum

from portal.workloads.models import Lease, Workload
from slipway.schemas.workloads import WorkloadState

RUNS_LOOKED_AT = 50
_S_AN_HOUR = 3600
# Seconds of cost reserved for workloads without history or lifetime limit.
UNKNOWN_S = 60


@dataclass(frozen=True)
class CostEstimate:
    """Median and middle 80 % of the cost of similar runs."""

    nano_usd: int
    low_nano_usd: int
    high_nano_usd: int
    runs: int


def expected_cost(
    *, project_id: str, kind: str, name: str, tier: str, tasks: int, is_preemptible: bool = False
) -> CostEstimate | None:
    """Return the cost of runs of the same name, kind, tier, size and price, or None without any.

    Counts the last fifty that succeeded.
    """
    unsettled = Lease.objects.filter(workload=OuterRef("pk"), is_settled=False)
    alike = Workload.objects.filter(
        project=project_id,
        name=name,
        kind=kind,
        tier__slug=tier,
        nodes=tasks,
        is_preemptible=is_preemptible,
        state=WorkloadState.SUCCEEDED,
    )
    last = alike.exclude(Exists(unsettled)).order_by("-pk").values("pk")[:RUNS_LOOKED_AT]
    costs = sorted(
        Lease.objects.filter(workload__in=list(last.values_list("pk", flat=True)))
        .order_by()
        .values("workload")
        .annotate(all=Sum("billed_nano_usd"))
        .values_list("all", flat=True)
    )
    if not costs:
        return None
    return CostEstimate(
        _quantile(costs, 0.5), _quantile(costs, 0.1), _quantile(costs, 0.9), len(costs)
    )


def _quantile(costs: list[int], part: float) -> int:
    return int(costs[min(len(costs) - 1, int(part * len(costs)))])


def reserve_amount(
    expected: CostEstimate | None, *, nano_usd_per_hour: int, max_lifetime_s: int | None
) -> int:
    """Return the amount a budget reserves: the expected cost, capped at the cost of its lifetime.

    Without history it is the whole lifetime, and without that a minute.
    """
    longest = UNKNOWN_S if max_lifetime_s is None else max_lifetime_s
    most = -(-nano_usd_per_hour * longest // _S_AN_HOUR)
    if expected is None:
        return most
    return expected.nano_usd if max_lifetime_s is None else min(most, expected.nano_usd)
