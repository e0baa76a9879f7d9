"""Check whether waiting work would fit if idle workloads were stopped."""

from collections import defaultdict
from collections.abc import Iterable
from datetime import timedelta

from portal.core import clock
from portal.workloads.models import Lease, Workload
from portal.workloads.placement import FreeCapacity, Site
from portal.workloads.scheduling import read_sites

# A workload that fits is placed within two seconds. One that waits longer does not fit.
_WAITS = timedelta(seconds=5)
_LOOKED_AT = 100


def blocks_queued_task(leases: Iterable[Lease]) -> bool:
    """Return whether a queued task fits on a node once these leases there are closed.

    Inspects the first hundred of the queue. Reads nothing but the queue while nobody waits.
    """
    queued = Workload.objects.queued().filter(waits_since__lt=clock.now() - _WAITS)
    needs = [workload.need for workload in queued[:_LOOKED_AT]]
    if not needs:
        return False
    by_node: defaultdict[str, list[Lease]] = defaultdict(list)
    for lease in leases:
        by_node[lease.node_id].append(lease)
    for site in read_sites():
        if site.node_id in by_node:
            without = _capacity_without(site, by_node[site.node_id])
            for need in needs:
                if site.matches(need) and without.count_of(need) > site.free.count_of(need) == 0:
                    return True
    return False


def _capacity_without(site: Site, leases: Iterable[Lease]) -> FreeCapacity:
    room = site.free.copy()
    models = dict(site.capacity.gpus)
    for lease in leases:
        room.cpu_millis += lease.cpu_millis
        room.memory_bytes += lease.memory_bytes
        room.gpus += [(index, models.get(index, "")) for index in lease.gpu_indices]
    return room
