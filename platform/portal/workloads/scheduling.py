"""The scheduler: one bounded pass that decides who runs where, and writes it in one transaction.

A pass reads the nodes, the first of each waiting project's queue and what it needs behind them, so
its cost depends on how much it places and not on how much waits. Passes follow one another under
the lock of a single row. Whatever a pass has read and somebody else has changed meanwhile is caught
by the guards of its UPDATEs, and the pass is done again.
"""

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime

from django.db import transaction
from django.db.models import Count, F

from portal.accounts.models import Project
from portal.compute.models import Node, NodeGroup, NodeGroupProject, Tier
from portal.core import clock
from portal.workloads.feasibility import is_gang_without_network, need_of
from portal.workloads.leasing import Decision, StalePass, grant
from portal.workloads.lifecycle import AllocationState
from portal.workloads.models import Lease, SchedulerTurn, Workload
from portal.workloads.placement import (
    Capacity,
    ExpectedEnd,
    FreeCapacity,
    Gpu,
    NodeSlot,
    Site,
    Tenancy,
)
from portal.workloads.queue import CANDIDATE_COLUMNS, Candidate, Queue, candidate_of
from slipway.schemas.workloads import ReasonCode, WorkloadState

BATCH = 128
_MAX_EXAMINED = 512
_MAX_KNOWN_ENDS = 2000
_ATTEMPTS = 3


@dataclass(frozen=True)
class PassResult:
    """Result of a pass. `more` is True if it reached its own limit and should be called again.

    `ended_holds` are workloads, and since when capacity was held for them, that lose their hold.
    """

    placed: int
    examined: int
    more: bool
    ended_holds: tuple[tuple[str, datetime], ...] = ()


@dataclass
class _Pass:
    """The decisions of one pass."""

    capacity: Capacity
    decisions: list[Decision] = field(default_factory=list)
    examined: int = 0
    does_not_fit: set[tuple[object, ...]] = field(default_factory=set)
    has_head: bool = False
    is_head_preemptible: bool = False
    holders: set[str] = field(default_factory=set)
    ended_holds: list[tuple[str, datetime]] = field(default_factory=list)

    @property
    def is_full(self) -> bool:
        """Return True if the pass has done as much as one pass may."""
        return len(self.decisions) >= BATCH or self.examined >= _MAX_EXAMINED


def run_pass() -> PassResult:
    """Place what can be placed, at most BATCH workloads. Safe to run at any time, anywhere."""
    for _ in range(_ATTEMPTS):
        try:
            with transaction.atomic():
                result = _run_locked()
        except StalePass:
            continue
        for workload_id, since in result.ended_holds:
            held = Workload.objects.with_hold().filter(pk=workload_id, held_since=since)
            held.update(held_nodes=[], held_since=None)
        return result
    return PassResult(placed=0, examined=0, more=True)


def _run_locked() -> PassResult:
    lock_scheduler()
    queue = Queue(clock.now().timestamp(), batch=BATCH)
    allocated = _allocated()
    if not queue.queues and not allocated:
        return PassResult(placed=0, examined=0, more=False)
    run = _Pass(Capacity(read_sites()))
    for candidate in allocated:
        _place_allocated(run, candidate)
    _place_held(run, queue)
    _decide(run, queue)
    placed = grant(run.decisions) if run.decisions else 0
    return PassResult(
        placed=placed,
        examined=run.examined,
        more=len(run.decisions) >= BATCH,
        ended_holds=tuple(run.ended_holds),
    )


def lock_scheduler() -> None:
    """Wait until no other pass runs, and keep others waiting until the transaction ends."""
    SchedulerTurn.objects.get_or_create(pk=1)
    SchedulerTurn.objects.filter(pk=1).update(passes=F("passes") + 1)  # holds the row's lock


def _decide(run: _Pass, queue: Queue) -> None:
    while not run.is_full and run.capacity.has_free():
        line = queue.next_queue()
        first = line.first() if line else None
        if line is None or first is None:
            return
        run.examined += 1
        is_held = first.workload_id in run.holders
        if is_held or line.blocks(first.total) or not _try(run, first):
            line.skip_first()
        else:
            line.pop_first(first.total)
            queue.reprioritize(line)


def _allocated() -> list[Candidate]:
    """Return the waiting workloads for which an engine has been asked, oldest first."""
    ordered = Workload.objects.queued().filter(allocations__state=AllocationState.SUBMITTED)
    rows = ordered.order_by("allocations__pk").values_list(*CANDIDATE_COLUMNS)
    return [candidate_of(row) for row in rows[:_MAX_EXAMINED]]


def _place_allocated(run: _Pass, candidate: Candidate) -> None:
    """Place a candidate on the nodes of its allocation, once all of them have joined.

    Quotas and the order of the queue counted when the allocation was ordered.
    """
    if run.is_full:
        return
    places = _places(run.capacity, candidate)
    if places:
        run.decisions.append(Decision(candidate, tuple(places)))


def _place_held(run: _Pass, queue: Queue) -> None:
    """Place workloads for which others were moved, and hold the capacity of those that wait.

    A hold ends early when a quota is in the way, or when nothing stops any more on its nodes and
    the workload does not fit on them all the same.
    """
    columns = (*CANDIDATE_COLUMNS, "held_nodes", "held_since")
    rows = Workload.objects.with_hold().values_list(*columns)[:_MAX_EXAMINED]
    waiting: list[tuple[Candidate, list[str], datetime]] = []
    for *row, nodes, since in rows:
        candidate = candidate_of(tuple(row))
        if queue.is_over_quota(candidate.project_id, candidate.total):
            run.ended_holds.append((candidate.workload_id, since))
            continue
        others = frozenset(site.node_id for site in run.capacity.sites) - set(nodes)
        places = _places(run.capacity, candidate, avoid=others)
        if places:
            run.decisions.append(Decision(candidate, tuple(places)))
        else:
            waiting.append((candidate, nodes, since))
        run.holders.add(candidate.workload_id)
        queue.count_ordered([(candidate.project_id, candidate.total)])
    stopping = Lease.objects.open().filter(workload__state=WorkloadState.STOPPING)
    stopping_on = set(stopping.values_list("node_id", flat=True)) if waiting else set()
    for candidate, nodes, since in waiting:
        if stopping_on.isdisjoint(nodes):
            run.ended_holds.append((candidate.workload_id, since))
            run.holders.discard(candidate.workload_id)
        else:
            run.capacity.hold(candidate.need, nodes, project=candidate.project_id)


def _places(
    capacity: Capacity,
    candidate: Candidate,
    *,
    avoid: frozenset[str] = frozenset(),
    passes_head: bool = False,
) -> list[NodeSlot]:
    return capacity.place(
        candidate.need,
        candidate.tasks,
        project=candidate.project_id,
        timestamp=clock.now(),
        lifetime=candidate.lifetime,
        avoid=avoid,
        passes_head=passes_head,
    )


def _try(run: _Pass, candidate: Candidate) -> bool:
    """Place a candidate if it fits. For the first that does not, the head, reserve capacity.

    What is not preemptible passes a preemptible head, which it could move once that has started.
    """
    need, tasks, lifetime = candidate.need, candidate.tasks, candidate.lifetime
    project = candidate.project_id
    passes_head = run.is_head_preemptible and not candidate.is_preemptible
    shape = (need, tasks, lifetime, run.capacity.domain_of(project), passes_head)
    if shape in run.does_not_fit or is_gang_without_network(need, tasks):
        return False
    places: list[NodeSlot] = []
    if avoided := _nodes_to_avoid(run.capacity, candidate):
        places = _places(run.capacity, candidate, avoid=avoided, passes_head=passes_head)
    places = places or _places(run.capacity, candidate, passes_head=passes_head)
    if places:
        run.decisions.append(Decision(candidate, tuple(places)))
        return True
    run.does_not_fit.add(shape)
    if (not run.has_head or passes_head) and run.capacity.reserve_for(
        need, tasks, _expected_ends(), project=project
    ):
        run.has_head, run.is_head_preemptible = True, candidate.is_preemptible
    if run.has_head:
        run.capacity.claim_for(need, tasks, project=project)
    return False


def _nodes_to_avoid(capacity: Capacity, candidate: Candidate) -> frozenset[str]:
    """Return the nodes that come last for a candidate, because of its latest attempt.

    After a start that failed it is that node. What was moved has its files on its own nodes.
    """
    leases = Lease.objects.filter(workload=candidate.workload_id, epoch=candidate.epoch)
    if candidate.start_failed:
        failed = leases.filter(reason=ReasonCode.START_FAILED)
        return frozenset(failed.values_list("node_id", flat=True))
    if candidate.was_moved:
        own = set(leases.values_list("node_id", flat=True))
        return frozenset(site.node_id for site in capacity.sites if site.node_id not in own)
    return frozenset()


def read_sites(project: Project | None = None) -> list[Site]:
    """Return the nodes that take new work (of a project, if given), with what is free on each."""
    accepting = Node.objects.accepting_work(clock.now()).order_by("name")
    nodes = list(accepting if project is None else accepting.usable_by(project))
    taken: dict[str, set[int]] = {}
    if any(node.gpus for node in nodes):
        holding = Lease.objects.open().filter(gpus__gt=0, node__in=nodes)
        for node_id, indices in holding.values_list("node_id", "gpu_indices"):
            taken.setdefault(node_id, set()).update(indices)
    tenancies = _tenancies(nodes)
    limits = projects_of_groups(node.group_id for node in nodes)
    return [
        site_of(node, taken.get(node.pk, set()), tenancies[node.pk], limits.get(node.group_id))
        for node in nodes
    ]


def projects_of_groups(group_ids: Iterable[str | None]) -> dict[str | None, frozenset[str]]:
    """Return the projects of node groups that are not for all."""
    used = {group_id for group_id in group_ids if group_id is not None}
    limited: dict[str | None, frozenset[str]] = {}
    if used:
        for group in NodeGroup.objects.filter(pk__in=used, is_for_all=False):
            allowed = NodeGroupProject.objects.filter(group=group)
            limited[group.pk] = frozenset(allowed.values_list("project_id", flat=True))
    return limited


def _tenancies(nodes: Iterable[Node]) -> defaultdict[str, Tenancy]:
    """Count the tasks by project on those nodes that cannot keep projects apart."""
    tenancies: defaultdict[str, Tenancy] = defaultdict(Tenancy)
    shared = {node.pk: backends for node in nodes if (backends := node.shared_backends)}
    if shared:
        leases = Lease.objects.open().filter(node__in=shared).order_by()
        grouped = leases.values_list("node_id", "project_id", "workload__backend")
        for node_id, project, backend, count in grouped.annotate(Count("pk")):
            is_shared = backend in shared[node_id]
            tenancies[node_id].add(project, is_shared=is_shared, count=count)
    return tenancies


def site_of(
    node: Node, taken: set[int], tenancy: Tenancy, projects: frozenset[str] | None = None
) -> Site:
    """Return a node as the scheduler sees it, for some projects or for all."""
    gpus: list[Gpu] = list(enumerate(node.gpu_models))
    free = node.free
    return Site(
        node_id=node.pk,
        name=node.name,
        labels=node.labels,
        backends=node.backends,
        capacity=FreeCapacity(node.cpu_millis, node.memory_bytes, gpus),
        free=FreeCapacity(
            free.cpu_millis, free.memory_bytes, [gpu for gpu in gpus if gpu[0] not in taken]
        ),
        shared_backends=node.shared_backends,
        network_backends=node.network_backends,
        reserved_for=node.reserved_for,
        tenancy=tenancy,
        pythons=node.pythons,
        projects=projects,
    )


def _expected_ends() -> Iterator[ExpectedEnd]:
    """Yield what runs now and has a maximum lifetime, soonest first."""
    ending = Lease.objects.open().filter(ends_by__isnull=False).order_by("ends_by")
    ending = ending.select_related("workload").only(
        *("node", "project", "ends_by", "workload__backend"),
        *("cpu_millis", "memory_bytes", "gpus", "gpu_indices"),
    )
    models = dict(Node.objects.present().filter(gpus__gt=0).values_list("pk", "gpu_models"))
    for lease in ending[:_MAX_KNOWN_ENDS]:
        if lease.ends_by is not None:
            named = models.get(lease.node_id, [])
            gpus = tuple((i, named[i] if i < len(named) else "") for i in lease.gpu_indices)
            yield ExpectedEnd(
                lease.node_id,
                lease.ends_by,
                lease.amount,
                gpus,
                project=lease.project_id,
                backend=lease.workload.backend,
            )


def free_task_slots(room: Capacity, project: Project, tier: Tier) -> int:
    """Return how many tasks of a project would fit now in a tier, on any back end."""
    return room.count_of(need_of(project, tier), project=project.pk)


def run_passes(*, within_s: float = 10.0) -> int:
    """Run passes until one has nothing left to place. Returns how many workloads were placed."""
    until = time.monotonic() + within_s
    placed = 0
    while True:
        result = run_pass()
        placed += result.placed
        if not result.more or time.monotonic() > until:
            return placed
