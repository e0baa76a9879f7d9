"""Cost of the machines of node groups, and the part of it that no work used.

Projects never pay it: they pay the price of their tier for what they use.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date, datetime

from portal.compute.lifecycle import MachineUse
from portal.compute.models import GroupMachine, MachineDay, NodeGroup
from portal.compute.services.machine_meter import unmetered_slices
from portal.spend.windows import Window

_READS = 3


@dataclass
class UseTotal:
    """Milliseconds and cost (nano-USD) of machines by use."""

    ms: Counter[MachineUse] = field(default_factory=Counter)
    cost: Counter[MachineUse] = field(default_factory=Counter)

    def add(self, use: MachineUse, ms: int, nano_usd: int) -> None:
        """Add a time in one use."""
        self.ms[use] += ms
        self.cost[use] += nano_usd

    @property
    def nano_usd(self) -> int:
        """Cost of the machines: work and overhead."""
        return sum(self.cost.values())

    @property
    def overhead_nano_usd(self) -> int:
        """Cost of the time without work."""
        return self.nano_usd - self.cost[MachineUse.WORK]


@dataclass
class GroupOverhead:
    """Cost of the machines of one group in a window, and on each day of it."""

    group: NodeGroup
    total: UseTotal = field(default_factory=UseTotal)
    by_day: defaultdict[date, UseTotal] = field(default_factory=lambda: defaultdict(UseTotal))


def overhead_of_groups(window: Window, timestamp: datetime) -> list[GroupOverhead]:
    """Return the cost of every group that had a machine in a window, the most overhead first.

    The current use of machines that exist is included up to `timestamp`.
    """
    days = MachineDay.objects.filter(day__range=(window.first, window.last))
    # A use that ends between the two reads would be counted twice, or not at all.
    for _ in range(_READS):
        machines = _open_machines()
        rows = list(days.values_list("group_id", "day", "use", "ms", "nano_usd"))
        if _metered(_open_machines()) == _metered(machines):
            break
    groups = NodeGroup.objects.in_bulk({row[0] for row in rows} | {m.group_id for m in machines})
    overheads = {pk: GroupOverhead(group) for pk, group in groups.items()}
    parts = [(group, day, MachineUse(use), ms, cost) for group, day, use, ms, cost in rows]
    for machine in machines:
        parts += [
            (machine.group_id, part.day, part.use, part.ms, part.nano_usd)
            for part in unmetered_slices(machine, timestamp)
            if window.first <= part.day <= window.last
        ]
    for group_id, day, use, ms, nano_usd in parts:
        overheads[group_id].total.add(use, ms, nano_usd)
        overheads[group_id].by_day[day].add(use, ms, nano_usd)
    used = [overhead for overhead in overheads.values() if overhead.by_day]
    return sorted(used, key=lambda row: (-row.total.overhead_nano_usd, row.group.name))


def _open_machines() -> list[GroupMachine]:
    return list(GroupMachine.objects.open().filter(metered_until__isnull=False).order_by("pk"))


def _metered(machines: Iterable[GroupMachine]) -> list[tuple[str, datetime | None]]:
    return [(machine.pk, machine.metered_until) for machine in machines]
