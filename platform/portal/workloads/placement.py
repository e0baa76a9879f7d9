"""Placement of tasks: fits a gang onto nodes and reserves capacity for the head of the queue.

Plain arithmetic on what a pass has read. Free capacity only shrinks during a pass, so what did not
fit once does not fit later in the same pass. No Django, no I/O.

Where a back end of a node cannot isolate projects, tasks of different projects never meet: the
node admits one project until the tasks of that project have ended (`Tenancy`), and it is reserved
for a project that waits for that (`Claim`), since a stream of short tasks would hold it for ever.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from heapq import heapify, heappop, heapreplace

from portal.compute.resources import Amount, Need

Gpu = tuple[int, str]  # index and model
# Grace period of a task that is stopped at its maximum lifetime.
_END_SLACK = timedelta(seconds=60)


@dataclass(slots=True)
class FreeCapacity:
    """Room on a node: all of it when a pass begins, or what may be given away of it."""

    cpu_millis: int
    memory_bytes: int
    gpus: list[Gpu] = field(default_factory=list)

    def copy(self) -> "FreeCapacity":
        """Return another one with as much room."""
        return FreeCapacity(self.cpu_millis, self.memory_bytes, list(self.gpus))

    def count_of(self, need: Need) -> int:
        """Return how many such tasks fit."""
        amount = need.amount
        if self.cpu_millis < amount.cpu_millis or self.memory_bytes < amount.memory_bytes:
            return 0
        count = self.cpu_millis // amount.cpu_millis
        if amount.memory_bytes:
            count = min(count, self.memory_bytes // amount.memory_bytes)
        if amount.gpus:
            count = min(count, len(_gpus_of_model(self.gpus, need.gpu_model)) // amount.gpus)
        return count

    def subtract(self, need: Need, gpus: Sequence[Gpu]) -> None:
        """Subtract what a task needs, and these GPUs, never below zero."""
        self.cpu_millis = max(0, self.cpu_millis - need.amount.cpu_millis)
        self.memory_bytes = max(0, self.memory_bytes - need.amount.memory_bytes)
        if gpus:
            self.gpus = [gpu for gpu in self.gpus if gpu not in gpus]


def _gpus_of_model(gpus: Iterable[Gpu], model: str) -> list[Gpu]:
    return [gpu for gpu in gpus if not model or gpu[1] == model]


@dataclass(slots=True)
class Tenancy:
    """The tasks on a node by project: all of them, and those on back ends that are `shared`."""

    tasks: Counter[str] = field(default_factory=Counter)
    shared: Counter[str] = field(default_factory=Counter)

    def copy(self) -> "Tenancy":
        """Return another one with the same tasks."""
        return Tenancy(self.tasks.copy(), self.shared.copy())

    def admits(self, project: str, *, is_shared: bool) -> bool:
        """Return True if a task of the project may join these.

        Tasks of two projects may be on one node only if both their back ends keep projects apart.
        """
        others = self.tasks if is_shared else self.shared
        return all(other == project for other in others)

    def add(self, project: str, *, is_shared: bool, count: int = 1) -> None:
        """Count tasks that were placed there."""
        self.tasks[project] += count
        if is_shared:
            self.shared[project] += count

    def remove(self, project: str, *, is_shared: bool) -> None:
        """Count off a task that has ended."""
        for counts in (self.tasks, self.shared) if is_shared else (self.tasks,):
            counts[project] -= 1
            if counts[project] <= 0:
                del counts[project]


@dataclass(frozen=True, slots=True)
class Claim:
    """A project that waits until the tasks of other projects on a node have ended.

    Where the head of the queue claims it, others may still use it for a time that ends before the
    head starts.
    """

    project: str
    is_shared: bool
    is_head: bool


@dataclass(frozen=True, slots=True)
class Site:
    """A node: what it is, and what is free on it when the pass begins.

    `shared_backends` cannot keep projects apart, `network_backends` can enforce the network rule.
    `reserved_for` is the only placement that may use it, if there is one.
    `tenancy` is counted for sites with shared back ends alone. `projects` may use it, all of them
    for None.
    """

    node_id: str
    name: str
    labels: Mapping[str, str]
    backends: Collection[str]
    capacity: FreeCapacity
    free: FreeCapacity
    shared_backends: Collection[str] = ()
    network_backends: Collection[str] = ()
    reserved_for: str = ""
    tenancy: Tenancy = field(default_factory=Tenancy)
    pythons: Collection[str] = ()
    projects: Collection[str] | None = None

    def is_for(self, project: str) -> bool:
        """Return True if the node takes work of a project (of any, if empty)."""
        return self.projects is None or not project or project in self.projects

    def suits(self, need: Need) -> bool:
        """Return True if the node could hold such a task if it were empty."""
        return self.matches(need) and self.capacity.count_of(need) > 0

    def matches(self, need: Need) -> bool:
        """Return True if the node is of the right kind, whatever its size."""
        return self.reserved_for == need.reserved_for and need.matches(
            self.labels, self.backends, self.network_backends, self.pythons
        )

    def is_shared(self, need: Need) -> bool:
        """Return True if projects reach each other in the task's back end (in any, if open)."""
        if need.backend:
            return need.backend in self.shared_backends
        return all(backend in self.shared_backends for backend in self.backends)


@dataclass(frozen=True, slots=True)
class NodeSlot:
    """A task's place: a node and the GPUs there."""

    node_id: str
    gpus: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ExpectedEnd:
    """Something that runs on a node and is gone by a known moment at the latest."""

    node_id: str
    at: datetime
    amount: Amount
    gpus: tuple[Gpu, ...]
    project: str = ""
    backend: str = ""


def spread(counts: Sequence[int], rank: Sequence[tuple[float, ...]], tasks: int) -> list[int]:
    """Choose a node for each of `tasks`, given how many fit on each, empty if they do not fit.

    Each task gets a node of its own while there are such, lowest rank first. The rest share.
    """
    if sum(counts) < tasks:
        return []
    order = sorted((i for i, count in enumerate(counts) if count), key=lambda i: rank[i])
    left = list(counts)
    chosen: list[int] = []
    while len(chosen) < tasks:
        for i in order:
            if left[i] and len(chosen) < tasks:
                left[i] -= 1
                chosen.append(i)
    return chosen


class Capacity:
    """Free capacity of a pass, and the part reserved for the head of the queue.

    `reserve_for` reserves: then a workload gets reserved capacity only if it surely ends before
    the head can start, or if what it takes is not what the head lacks.
    """

    def __init__(self, sites: Sequence[Site]) -> None:
        self.sites = sites
        self.free = [site.free.copy() for site in sites]
        self._spare: dict[int, FreeCapacity] = {}
        self._head_starts: datetime | None = None
        self._tightest: dict[tuple[Need, str], list[tuple[tuple[float, ...], int]]] = {}
        self._has_shared = any(site.shared_backends for site in sites)
        self._tenancies = [site.tenancy.copy() for site in sites] if self._has_shared else []
        self._claims: dict[int, Claim] = {}
        self._has_limited = any(site.projects is not None for site in sites)

    def add(self, site: Site) -> None:
        """Add a node that does not exist yet."""
        self.sites = [*self.sites, site]
        self.free.append(site.free.copy())
        self._has_limited = self._has_limited or site.projects is not None
        self._has_shared = self._has_shared or bool(site.shared_backends)
        while self._has_shared and len(self._tenancies) < len(self.sites):
            self._tenancies.append(self.sites[len(self._tenancies)].tenancy.copy())
        self._tightest.clear()

    def remove_last(self, count: int) -> None:
        """Remove nodes that were added last, on which nothing is placed."""
        end = len(self.sites) - count
        self.sites = self.sites[:end]
        del self.free[end:], self._tenancies[end:]
        self._tightest.clear()

    def domain_of(self, project: str) -> str:
        """Return what tells projects apart here: the same for all where no node does so."""
        return project if self._has_shared or self._has_limited else ""

    def place(
        self,
        need: Need,
        tasks: int,
        *,
        project: str,
        timestamp: datetime,
        lifetime: timedelta | None = None,
        avoid: frozenset[str] = frozenset(),
        passes_head: bool = False,
    ) -> list[NodeSlot]:
        """Reserve capacity for a gang, all tasks or none. Empty if it does not fit.

        `avoid` holds the ids of nodes it must not be put on. With `passes_head` it may have what is
        reserved for the head.
        """
        if tasks == 1 and not self._spare and not avoid:
            return self._place_single(need, project)
        is_short = passes_head or self._ends_before_head(timestamp, lifetime)
        counts = [
            0 if site.node_id in avoid else self._count(i, need, project, is_short=is_short)
            for i, site in enumerate(self.sites)
        ]
        if sum(counts) < tasks:
            return []
        rank = [
            _tightness(spot, need) if count else ()
            for spot, count in zip(self.free, counts, strict=True)
        ]
        chosen = spread(counts, rank, tasks)
        return [self._reserve(i, need, project, is_short=is_short) for i in chosen]

    def _place_single(self, need: Need, project: str) -> list[NodeSlot]:
        """Reserve on about the tightest node that fits, without inspecting all of them.

        Nodes are in a heap for each need. What others took from one meanwhile is noticed when
        its turn comes. Where nodes are shared each project has heaps of its own.
        """
        key = need, self.domain_of(project)
        heap = self._tightest.get(key)
        if heap is None:
            fitting = (i for i, site in enumerate(self.sites) if site.suits(need))
            heap = [(_tightness(self.free[i], need), i) for i in fitting]
            heapify(heap)
            self._tightest[key] = heap
        while heap:
            rank, i = heap[0]
            if not self.free[i].count_of(need) or not self.admits(i, need, project):
                heappop(heap)
                continue
            now = _tightness(self.free[i], need)
            if now == rank:
                return [self._reserve(i, need, project, is_short=False)]
            heapreplace(heap, (now, i))
        return []

    def has_free(self) -> bool:
        """Return True if any node has both CPU and memory left."""
        return any(spot.cpu_millis > 0 and spot.memory_bytes > 0 for spot in self.free)

    def count_of(self, need: Need, *, project: str = "") -> int:
        """Return how many such tasks of a project (without one, of any project) would fit now."""
        return sum(self._count(i, need, project, is_short=True) for i in range(len(self.sites)))

    def admits(self, i: int, need: Need, project: str, *, is_short: bool = False) -> bool:
        """Return True if no other project keeps such a task of this project off a site."""
        site = self.sites[i]
        if not site.is_for(project):
            return False
        if not site.shared_backends or not project:
            return True
        is_shared = site.is_shared(need)
        if not self._tenancies[i].admits(project, is_shared=is_shared):
            return False
        claim = self._claims.get(i)
        if claim is None or claim.project == project or not (claim.is_shared or is_shared):
            return True
        return claim.is_head and is_short

    def reserve_for(
        self, need: Need, tasks: int, ends: Iterable[ExpectedEnd], *, project: str
    ) -> bool:
        """Reserve for the first workload that does not fit now. Returns False if it never could.

        The nodes reserved are those where it can start soonest by what is known of the ends of what
        runs. Without such knowledge, they are those on which least is missing.
        """
        later = [spot.copy() for spot in self.free]
        chosen = self._when_known(later, need, tasks, ends, project)
        if not chosen:
            later = [spot.copy() for spot in self.free]
            chosen = self._nodes_missing_least(need, tasks, project)
        for i in chosen:
            spare = self._spare.setdefault(i, later[i])
            spare.subtract(need, self._reserved_gpus(i, spare, need))
            if self.sites[i].shared_backends:
                self._claims[i] = Claim(project, self.sites[i].is_shared(need), is_head=True)
        return bool(chosen)

    def claim_for(self, need: Need, tasks: int, *, project: str) -> None:
        """Reserve nodes for a project that tasks of other projects keep from starting there.

        Capacity is reserved for one head, not always on such a node. A project claims once a pass,
        and nothing while it has a node of this kind to itself: what becomes free there is its own.
        """
        if not self._has_shared or any(c.project == project for c in self._claims.values()):
            return
        fitting = [
            i for i, site in enumerate(self.sites) if site.suits(need) and site.is_for(project)
        ]
        if sum(self.sites[i].capacity.count_of(need) for i in fitting) < tasks:
            return
        shared = [i for i in fitting if self.sites[i].shared_backends]
        if any(self._tenancies[i].tasks[project] and self.admits(i, need, project) for i in shared):
            return
        counts = [0] * len(self.sites)
        for i in shared:
            if i not in self._claims and not self.admits(i, need, project):
                counts[i] = self.sites[i].capacity.count_of(need)
        rank = [(float(tenancy.tasks.total()),) for tenancy in self._tenancies]
        for i in spread(counts, rank, min(tasks, sum(counts))):
            self._claims[i] = Claim(project, self.sites[i].is_shared(need), is_head=False)

    def hold(self, need: Need, nodes: Iterable[str], *, project: str) -> None:
        """Set aside what is free for a task on each of these nodes, which nobody else gets.

        A node that takes no new work is passed over.
        """
        at = {site.node_id: i for i, site in enumerate(self.sites)}
        for node_id in nodes:
            i = at.get(node_id)
            if i is None:
                continue
            fitting = _gpus_of_model(self.free[i].gpus, need.gpu_model)
            self.free[i].subtract(need, fitting[: need.amount.gpus])
            if self.sites[i].shared_backends:
                self._claims[i] = Claim(project, self.sites[i].is_shared(need), is_head=False)

    @property
    def head_starts(self) -> datetime | None:
        """The moment by which the head can start at the latest, if that is known."""
        return self._head_starts

    def _ends_before_head(self, timestamp: datetime, lifetime: timedelta | None) -> bool:
        if self._head_starts is None or lifetime is None:
            return False
        return timestamp + lifetime + _END_SLACK <= self._head_starts

    def _count(self, i: int, need: Need, project: str, *, is_short: bool) -> int:
        count = self.free[i].count_of(need)
        if not count or not self.sites[i].matches(need):
            return 0
        if not self.admits(i, need, project, is_short=is_short):
            return 0
        if is_short or i not in self._spare:
            return count
        return self._common(i).count_of(need)

    def _common(self, i: int) -> FreeCapacity:
        """Return what is free on a reserved node and not needed by the head."""
        free, spare = self.free[i], self._spare[i]
        return FreeCapacity(
            min(free.cpu_millis, spare.cpu_millis),
            min(free.memory_bytes, spare.memory_bytes),
            [gpu for gpu in free.gpus if gpu in spare.gpus],
        )

    def _reserve(self, i: int, need: Need, project: str, *, is_short: bool) -> NodeSlot:
        is_kept = i in self._spare and not is_short
        source = self._common(i) if is_kept else self.free[i]
        gpus = _gpus_of_model(source.gpus, need.gpu_model)[: need.amount.gpus]
        self.free[i].subtract(need, gpus)
        if is_kept:
            self._spare[i].subtract(need, gpus)
        if self.sites[i].shared_backends:
            self._tenancies[i].add(project, is_shared=self.sites[i].is_shared(need))
        return NodeSlot(self.sites[i].node_id, tuple(index for index, _ in gpus))

    def _when_known(
        self,
        later: list[FreeCapacity],
        need: Need,
        tasks: int,
        ends: Iterable[ExpectedEnd],
        project: str,
    ) -> list[int]:
        """Let what runs end in time until the head fits. Note when that is."""
        at = {site.node_id: i for i, site in enumerate(self.sites)}
        tenancies = [tenancy.copy() for tenancy in self._tenancies]

        def count_at(i: int) -> int:
            site = self.sites[i]
            if not site.suits(need) or not site.is_for(project):
                return 0
            is_shared = site.is_shared(need)
            if site.shared_backends and not tenancies[i].admits(project, is_shared=is_shared):
                return 0
            return later[i].count_of(need)

        counts = [count_at(i) for i in range(len(self.sites))]
        for end in sorted(ends, key=lambda end: end.at):
            i = at.get(end.node_id)
            if i is None:
                continue
            later[i].cpu_millis += end.amount.cpu_millis
            later[i].memory_bytes += end.amount.memory_bytes
            later[i].gpus += end.gpus
            if shared := self.sites[i].shared_backends:
                tenancies[i].remove(end.project, is_shared=end.backend in shared)
            counts[i] = count_at(i)
            if sum(counts) >= tasks:
                self._head_starts = end.at
                return spread(counts, [_tightness(spot, need) for spot in later], tasks)
        return []

    def _nodes_missing_least(self, need: Need, tasks: int, project: str) -> list[int]:
        counts = [
            site.capacity.count_of(need) if site.suits(need) and site.is_for(project) else 0
            for site in self.sites
        ]
        rank = [missing_part(spot, need) for spot in self.free]
        for i, (most, total) in enumerate(rank):
            if counts[i] and not self.admits(i, need, project):
                rank[i] = max(most, 1.0), total + 1.0  # not available to this project
        return spread(counts, rank, tasks)

    def _reserved_gpus(self, i: int, spare: FreeCapacity, need: Need) -> list[Gpu]:
        """Choose the GPUs set aside, those first that nobody else could have now anyway."""
        fitting = _gpus_of_model(spare.gpus, need.gpu_model)
        free = self.free[i].gpus
        fitting.sort(key=lambda gpu: gpu in free)
        return fitting[: need.amount.gpus]


def _tightness(spot: FreeCapacity, need: Need) -> tuple[float, ...]:
    """Rank nodes so that GPUs are not spent on those who need none, and gaps are filled."""
    return (len(spot.gpus) - need.amount.gpus, spot.cpu_millis, spot.memory_bytes)


def missing_part(spot: FreeCapacity, need: Need) -> tuple[float, float]:
    """Rank nodes by how much of the need is not free, in parts of the need."""
    amount = need.amount
    gpus = len(_gpus_of_model(spot.gpus, need.gpu_model))
    parts = [
        max(0.0, 1 - spot.cpu_millis / amount.cpu_millis) if amount.cpu_millis else 0.0,
        max(0.0, 1 - spot.memory_bytes / amount.memory_bytes) if amount.memory_bytes else 0.0,
        max(0.0, 1 - gpus / amount.gpus) if amount.gpus else 0.0,
    ]
    return (max(parts), sum(parts))
