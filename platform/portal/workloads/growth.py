"""Grows and shrinks node groups: requests nodes for what waits, and releases those without work.

A run follows the machines that exist, then goes through the queue as the scheduler would, with the
nodes that exist and those that are starting. What does not fit there, and would fit on more nodes
of a group, asks for them. Work that a quota keeps from starting asks for none, and work that a
budget holds back is not in the queue.

Every step may be repeated or interrupted anywhere. See `compute.services.group_machines`.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import structlog
from django.db.models import Q

from portal.compute.models import GroupMachine, NodeGroup
from portal.compute.provisioners import Provisioner, ProvisionerAway
from portal.compute.services.group_machines import (
    commit_machines,
    follow_machines,
    note_away,
    release_idle_machines,
    request_machine,
)
from portal.compute.services.node_groups import expected_node
from portal.core import clock
from portal.workloads.feasibility import is_gang_without_network
from portal.workloads.models import Workload
from portal.workloads.placement import Capacity, NodeSlot, Site, Tenancy
from portal.workloads.queue import CANDIDATE_COLUMNS, Candidate, Queue, candidate_of
from portal.workloads.scheduling import projects_of_groups, read_sites, site_of

log = structlog.get_logger(__name__)
_MOST_EXAMINED = 256


def tend_node_groups() -> None:
    """Follow the machines of every group, release idle nodes, and request those that work needs."""
    in_use = GroupMachine.objects.open().values("group")
    groups = list(NodeGroup.objects.filter(Q(removed_at__isnull=True) | Q(pk__in=in_use)))
    if not groups:
        return
    provisioners: dict[str, Provisioner] = {}
    for group in groups:
        try:
            provisioner = follow_machines(group)
        except Exception:
            log.exception("the machines of a group could not be followed", group=group.name)
            continue
        if provisioner is not None:
            provisioners[group.pk] = provisioner
    # Read again: following them changes problems and the time of the next try.
    groups = list(NodeGroup.objects.filter(pk__in=provisioners).order_by("nano_usd_per_hour", "pk"))
    plan = plan_growth(groups)
    for group in groups:
        try:
            release_idle_machines(group, needed=plan.needed_nodes)
            known = plan.known[group.pk]
            count = plan.count_for(group)
            if count > 0:
                for machine in commit_machines(group, count, known=known):
                    request_machine(provisioners[group.pk], machine)
        except ProvisionerAway as problem:
            note_away(group, problem)
        except Exception:
            log.exception("a group could not be grown or shrunk", group=group.name)


@dataclass
class GrowthPlan:
    """Machines to request by group, on top of the `known` ones, and nodes for which work waits."""

    known: dict[str, list[str]] = field(default_factory=dict)
    requests: Counter[str] = field(default_factory=Counter)
    needed_nodes: set[str] = field(default_factory=set)

    def count_for(self, group: NodeGroup) -> int:
        """Return how many machines to request: for work, and for the least of the group."""
        missing = group.min_nodes - len(self.known[group.pk]) if group.is_open else 0
        return max(self.requests[group.pk], missing)


def plan_growth(groups: Sequence[NodeGroup]) -> GrowthPlan:
    """Go through the queue and return what it needs beyond the nodes that exist."""
    plan = GrowthPlan({group.pk: [] for group in groups})
    counted = GroupMachine.objects.counted().filter(group__in=groups)
    starting: Counter[str] = Counter()
    for machine in counted.order_by("pk"):
        plan.known[machine.group_id].append(machine.pk)
        starting[machine.group_id] += machine.node_id is None
    if not Workload.objects.waiting_in(None).exists():
        return plan
    timestamp = clock.now()
    limits = projects_of_groups(group.pk for group in groups)
    capacity = Capacity(read_sites())
    for group in groups:
        for number in range(starting[group.pk]):
            capacity.add(_expected_site(group, number, limits.get(group.pk)))
    growing = [
        _GrowingGroup(group, limits.get(group.pk), group.max_nodes - len(plan.known[group.pk]))
        for group in groups
        if group.is_open and group.removed_at is None and not group.is_backing_off(timestamp)
    ]
    queue = Queue(timestamp.timestamp(), batch=_MOST_EXAMINED)
    held = _hold(capacity, queue)
    for _ in range(_MOST_EXAMINED):
        line = queue.next_queue()
        candidate = line.first() if line else None
        if line is None or candidate is None:
            break
        is_out = candidate.workload_id in held or is_gang_without_network(
            candidate.need, candidate.tasks
        )
        if is_out or line.blocks(candidate.total):
            line.skip_first()
            continue
        places = _place(capacity, candidate) or _grow(capacity, candidate, growing, plan)
        if not places:
            line.skip_first()
            continue
        plan.needed_nodes.update(place.node_id for place in places)
        line.pop_first(candidate.total)
        queue.reprioritize(line)
    return plan


@dataclass
class _GrowingGroup:
    """A group that may request `room` more machines."""

    group: NodeGroup
    projects: frozenset[str] | None
    room: int
    number: int = 1000

    def next_site(self) -> Site:
        """Return another node as the group would make it."""
        self.number += 1
        return _expected_site(self.group, self.number, self.projects)


def _expected_site(group: NodeGroup, number: int, projects: frozenset[str] | None) -> Site:
    return site_of(expected_node(group, number), set(), Tenancy(), projects)


def _hold(capacity: Capacity, queue: Queue) -> set[str]:
    """Set aside what is held for workloads for which others are moved. Returns their ids."""
    columns = (*CANDIDATE_COLUMNS, "held_nodes")
    held = set()
    for *row, nodes in Workload.objects.with_hold().values_list(*columns)[:_MOST_EXAMINED]:
        candidate = candidate_of(tuple(row))
        capacity.hold(candidate.need, nodes, project=candidate.project_id)
        queue.count_ordered([(candidate.project_id, candidate.total)])
        held.add(candidate.workload_id)
    return held


def _place(capacity: Capacity, candidate: Candidate) -> list[NodeSlot]:
    return capacity.place(
        candidate.need, candidate.tasks, project=candidate.project_id, timestamp=clock.now()
    )


def _grow(
    capacity: Capacity, candidate: Candidate, growing: Iterable[_GrowingGroup], plan: GrowthPlan
) -> list[NodeSlot]:
    """Add the fewest nodes of the cheapest group with which a workload fits, all of it or none."""
    need, project = candidate.need, candidate.project_id
    for growth in growing:
        site = growth.next_site()
        if not site.is_for(project) or not site.suits(need):
            continue
        lacking = candidate.tasks - capacity.count_of(need, project=project)
        count = max(1, -(-lacking // site.capacity.count_of(need)))
        if count > growth.room:
            continue
        sites = [site, *(growth.next_site() for _ in range(count - 1))]
        for new in sites:
            capacity.add(new)
        places = _place(capacity, candidate)
        if places:
            growth.room -= count
            plan.requests[growth.group.pk] += count
            return places
        capacity.remove_last(count)
    return []
