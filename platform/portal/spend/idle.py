"""Idle resources: capacity that is not allocated, and tasks that hardly use their allocation."""

from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Avg, Q

from portal.accounts.principal import Principal
from portal.compute.models import Node
from portal.spend.ledger import LedgerEntry
from portal.spend.meter import (
    entries_of,
    unbilled_of_holding,
    unbilled_of_lease,
    unsettled_ids,
    unsettled_leases,
)
from portal.spend.models import Holding, NodeDay
from portal.spend.models.ledger import KIND_CAPACITY
from portal.spend.rates import Amounts, Rates
from portal.spend.windows import Window
from portal.workloads.costs import lease_price, price_steps, unix_ms
from portal.workloads.models import Lease, UsageSample

# A task is idle if it used less than this part of its CPU and GPU for this long.
HARDLY_PERCENT = 5.0
LOOKED_AT = timedelta(minutes=30)
_LEAST_AGE = timedelta(minutes=15)
_AT_MOST = 1000


@dataclass(frozen=True)
class NodeIdle:
    """Capacity of a node in a window and the part of it that was idle."""

    node: str
    name: str
    capacity_nano_usd: int
    held_nano_usd: int
    idle_now_nano_usd_per_hour: int

    @property
    def idle_nano_usd(self) -> int:
        """Capacity less allocations."""
        return self.capacity_nano_usd - self.held_nano_usd

    @property
    def idle_percent(self) -> float:
        """Idle share of the capacity."""
        return 100 * self.idle_nano_usd / self.capacity_nano_usd if self.capacity_nano_usd else 0.0


@dataclass(frozen=True)
class IdleUsage:
    """A task with low utilization of its hardware."""

    lease: Lease
    cpu_percent: float
    nano_usd_per_hour: int


def idle_of_nodes(window: Window, timestamp: datetime) -> list[NodeIdle]:
    """Return the idle cost of every node in a window, including live usage, the largest first.

    Capacity and allocations are priced alike, at the rates of bare resources, and a node allocates
    no more than it has, so the idle cost is never negative.
    """
    capacity: Counter[str] = Counter()
    held: Counter[str] = Counter()
    days = NodeDay.objects.filter(day__range=(window.first, window.last))
    for node, of_capacity, of_held in days.values_list(
        "node", "capacity_nano_usd", "held_nano_usd"
    ):
        capacity[node] += of_capacity
        held[node] += of_held
    rates = Rates.read()
    for entry in _live(rates, unix_ms(timestamp)):
        if window.first <= entry.day <= window.last:
            sums = capacity if entry.of.kind == KIND_CAPACITY else held
            sums[entry.of.node] += entry.value_nano_usd
    nodes = {node.pk: node for node in Node.objects.filter(pk__in=capacity)}
    node_idles = [
        NodeIdle(
            node=pk,
            name=nodes[pk].name if pk in nodes else pk,
            capacity_nano_usd=capacity[pk],
            held_nano_usd=min(held[pk], capacity[pk]),
            idle_now_nano_usd_per_hour=_free_an_hour(nodes.get(pk), rates, unix_ms(timestamp)),
        )
        for pk in capacity
    ]
    return sorted(node_idles, key=lambda node_idle: -node_idle.idle_nano_usd)


def _live(rates: Rates, now_ms: int) -> list[LedgerEntry]:
    entries: list[LedgerEntry] = []
    for holding in Holding.objects.filter(is_settled=False, kind=KIND_CAPACITY):
        entries += entries_of(unbilled_of_holding(holding, rates, now_ms), rates)
    for lease in unsettled_leases():
        entries += entries_of(unbilled_of_lease(lease, (), rates, now_ms), rates)
    return entries


def _free_an_hour(node: Node | None, rates: Rates, now_ms: int) -> int:
    if node is None:
        return 0
    free = node.free
    amounts = Amounts(max(0, free.cpu_millis), max(0, free.memory_bytes), max(0, free.gpus))
    return rates.an_hour(amounts, at_ms=now_ms)


def idle_tasks(principal: Principal, timestamp: datetime) -> list[IdleUsage]:
    """Return visible tasks with low utilization of their resources, the top by cost first."""
    projects = frozenset(principal.projects().live().values_list("pk", flat=True))
    old_enough = Lease.objects.open().filter(
        pk__in=unsettled_ids(projects),
        state="running",
        started_at__lte=timestamp - _LEAST_AGE,
    )
    leases = {
        lease.pk: lease
        for lease in old_enough.select_related("workload__project", "tier").order_by("-pk")[
            :_AT_MOST
        ]
    }
    recent = UsageSample.objects.filter(lease__in=leases, at__gte=timestamp - LOOKED_AT)
    means = (
        recent.order_by()
        .values("lease")
        .annotate(cpu=Avg("cpu_percent"), gpu=Avg("gpu_percent"))
        .filter(Q(gpu__isnull=True) | Q(gpu__lt=HARDLY_PERCENT))
    )
    steps = price_steps({lease.tier_id for lease in leases.values()}) if leases else {}
    idle_usages = []
    for row in means:
        lease = leases[row["lease"]]
        used = row["cpu"] * 1000 / lease.cpu_millis
        if used < HARDLY_PERCENT:
            price = lease_price(lease, steps.get(lease.tier_id, ()), at_ms=unix_ms(timestamp))
            idle_usages.append(IdleUsage(lease, used, price))
    return sorted(idle_usages, key=lambda idle_usage: -idle_usage.nano_usd_per_hour)
