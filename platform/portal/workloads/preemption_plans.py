"""Choice of the preemptible workloads that are moved so that another one fits.

Plain arithmetic on what a pass has read. No Django, no I/O.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from portal.compute.resources import Amount, Need
from portal.workloads.placement import FreeCapacity, Gpu, Site, missing_part, spread

# Pairs of victims on one node are tried among so many of the cheapest.
_PAIRED = 24


@dataclass(frozen=True, slots=True)
class OccupiedPart:
    """The part of a node that one task of a workload occupies."""

    node_id: str
    amount: Amount
    gpus: tuple[Gpu, ...]
    project: str
    backend: str


@dataclass(frozen=True, slots=True)
class PreemptibleWorkload:
    """A running workload that may be moved, all its tasks or none.

    `cost` orders the choice, cheapest first: claim of its project, then the work that is lost.
    """

    workload_id: str
    epoch: int
    project_id: str
    team_id: str | None
    parts: tuple[OccupiedPart, ...]
    cost: tuple[float, float]


@dataclass(frozen=True, slots=True)
class PreemptionPlan:
    """The workloads to move, and the node of each task that starts in their place."""

    victims: tuple[PreemptibleWorkload, ...]
    nodes: tuple[str, ...]


class Outlook:
    """Capacity as it will be once everything has stopped that is stopping now."""

    def __init__(self, sites: Sequence[Site], stopping: Iterable[OccupiedPart] = ()) -> None:
        self._sites = sites
        self._free = [site.free.copy() for site in sites]
        self._tenancies = [site.tenancy.copy() for site in sites]
        self._at = {site.node_id: i for i, site in enumerate(sites)}
        self._reserved: set[int] = set()
        for part in stopping:
            self._release(part)

    def hold(self, need: Need, nodes: Iterable[str], *, project: str) -> None:
        """Subtract a task on each of these nodes, as far as they are here."""
        for node_id in nodes:
            i = self._at.get(node_id)
            if i is None:
                continue
            fitting = [gpu for gpu in self._free[i].gpus if need.gpu_model in ("", gpu[1])]
            self._free[i].subtract(need, fitting[: need.amount.gpus])
            if self._sites[i].shared_backends:
                is_shared = self._sites[i].is_shared(need)
                self._tenancies[i].add(project, is_shared=is_shared)

    def place(self, need: Need, tasks: int, *, project: str) -> bool:
        """Subtract a workload where it fits without a move. Returns False if it does not fit."""
        counts = [self._count(i, need, project) for i in range(len(self._sites))]
        chosen = spread(counts, self._ranks(need), tasks)
        self.hold(need, (self._sites[i].node_id for i in chosen), project=project)
        return bool(chosen)

    def reserve(self, need: Need, tasks: int) -> bool:
        """Keep plans off the nodes on which a workload waits. Returns False if it never could."""
        counts = [site.capacity.count_of(need) if site.suits(need) else 0 for site in self._sites]
        chosen = spread(counts, self._ranks(need), tasks)
        self._reserved.update(chosen)
        return bool(chosen)

    def plan(
        self, need: Need, tasks: int, victims: Sequence[PreemptibleWorkload], *, project: str
    ) -> PreemptionPlan | None:
        """Return the fewest and cheapest victims with which a gang fits, None if there are none.

        What it returns counts as done: the victims are gone and their place is taken.
        """
        search = _Search(self, need, tasks, project, victims)
        chosen = search.run()
        if chosen is None:
            return None
        moved = [victim for victim in victims if victim.workload_id in chosen]
        for victim in moved:
            for part in victim.parts:
                self._release(part)
        counts = [self._count(i, need, project) for i in range(len(self._sites))]
        for i in self._reserved:
            counts[i] = 0
        places = [self._sites[i].node_id for i in spread(counts, self._ranks(need), tasks)]
        self.hold(need, places, project=project)
        return PreemptionPlan(tuple(moved), tuple(places))

    def open_sites(self, need: Need) -> list[int]:
        """Return the sites that such a task may get by a move."""
        suiting = (i for i, site in enumerate(self._sites) if site.suits(need))
        return [i for i in suiting if i not in self._reserved]

    def site_at(self, node_id: str) -> int | None:
        """Return the index of a node, None if it takes no new work."""
        return self._at.get(node_id)

    def count_without(self, i: int, need: Need, project: str, parts: Iterable[OccupiedPart]) -> int:
        """Return how many tasks would fit on a site if these parts of it were free."""
        if not self._sites[i].is_for(project):
            return 0
        free, tenancy = self._free[i].copy(), self._tenancies[i].copy()
        shared = self._sites[i].shared_backends
        for part in parts:
            _add(free, part)
            if shared:
                tenancy.remove(part.project, is_shared=part.backend in shared)
        if shared and not tenancy.admits(project, is_shared=self._sites[i].is_shared(need)):
            return 0
        return free.count_of(need)

    def _count(self, i: int, need: Need, project: str) -> int:
        if not self._sites[i].suits(need):
            return 0
        return self.count_without(i, need, project, ())

    def _release(self, part: OccupiedPart) -> None:
        i = self._at.get(part.node_id)
        if i is None:
            return
        _add(self._free[i], part)
        if shared := self._sites[i].shared_backends:
            self._tenancies[i].remove(part.project, is_shared=part.backend in shared)

    def _ranks(self, need: Need) -> list[tuple[float, ...]]:
        return [missing_part(spot, need) for spot in self._free]


def _add(free: FreeCapacity, part: OccupiedPart) -> None:
    free.cpu_millis += part.amount.cpu_millis
    free.memory_bytes += part.amount.memory_bytes
    free.gpus += part.gpus


class _Search:
    """Search for the victims of one plan: node by node, and then without those not needed."""

    def __init__(
        self,
        outlook: Outlook,
        need: Need,
        tasks: int,
        project: str,
        victims: Sequence[PreemptibleWorkload],
    ) -> None:
        self._outlook = outlook
        self._need = need
        self._tasks = tasks
        self._project = project
        self._sites = outlook.open_sites(need)
        self._victims = {victim.workload_id: victim for victim in victims}
        self._parts: dict[int, dict[str, list[OccupiedPart]]] = {i: {} for i in self._sites}
        for victim in sorted(victims, key=_order):
            for part in victim.parts:
                i = outlook.site_at(part.node_id)
                if i in self._parts:
                    self._parts[i].setdefault(victim.workload_id, []).append(part)

    def run(self) -> frozenset[str] | None:
        """Return the ids of the victims, None if the gang would not fit without all of them."""
        if self._total(self._victims) < self._tasks:
            return None
        chosen: frozenset[str] = frozenset()
        more: dict[int, frozenset[str]] = {i: self._cheapest(i, chosen) for i in self._sites}
        while self._total(chosen) < self._tasks:
            options = [victims for victims in more.values() if victims]
            if not options:
                return None
            added = min(options, key=self._cost)
            chosen |= added
            for i in self._sites:
                if added & self._parts[i].keys():
                    more[i] = self._cheapest(i, chosen)
        for workload_id in sorted(chosen, key=self._cost_of_one, reverse=True):
            if self._total(chosen - {workload_id}) >= self._tasks:
                chosen -= {workload_id}
        return chosen

    def _total(self, removed: Collection[str]) -> int:
        return sum(self._count(i, removed) for i in self._sites)

    def _count(self, i: int, removed: Collection[str]) -> int:
        parts = [
            part
            for workload_id, own in self._parts[i].items()
            if workload_id in removed
            for part in own
        ]
        return self._outlook.count_without(i, self._need, self._project, parts)

    def _cheapest(self, i: int, chosen: frozenset[str]) -> frozenset[str]:
        """Return the fewest further victims with which one task more fits on a site."""
        before = self._count(i, chosen)
        for option in self._options(i, chosen):
            if self._count(i, chosen | option) > before:
                return self._without_spare(i, chosen, option, before)
        return frozenset()

    def _options(self, i: int, chosen: frozenset[str]) -> Iterator[frozenset[str]]:
        left = [workload_id for workload_id in self._parts[i] if workload_id not in chosen]
        for size in (1, 2):
            yield from sorted(
                map(frozenset, combinations(left[:_PAIRED] if size == 2 else left, size)),
                key=self._cost,
            )
        # The largest first are fewer. All of them is the last resort, and what is spare goes again.
        by_size = sorted(left, key=lambda workload_id: self._size(i, workload_id), reverse=True)
        for order in (by_size, left):
            for end in range(3, len(order) + 1):
                yield frozenset(order[:end])

    def _without_spare(
        self, i: int, chosen: frozenset[str], option: frozenset[str], before: int
    ) -> frozenset[str]:
        for workload_id in sorted(option, key=self._cost_of_one, reverse=True):
            fewer = option - {workload_id}
            if fewer and self._count(i, chosen | fewer) > before:
                option = fewer
        return option

    def _size(self, i: int, workload_id: str) -> tuple[int, int]:
        amounts = [part.amount for part in self._parts[i][workload_id]]
        return sum(amount.gpus for amount in amounts), sum(amount.cpu_millis for amount in amounts)

    def _cost_of_one(self, workload_id: str) -> tuple[tuple[float, float], str]:
        return _order(self._victims[workload_id])

    def _cost(self, victims: Collection[str]) -> tuple[float, ...]:
        costs = [self._victims[workload_id].cost for workload_id in victims]
        return len(costs), sum(cost[0] for cost in costs), sum(cost[1] for cost in costs)


def _order(victim: PreemptibleWorkload) -> tuple[tuple[float, float], str]:
    return victim.cost, victim.workload_id
