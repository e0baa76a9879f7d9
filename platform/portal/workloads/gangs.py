"""Addresses of the tasks of gangs, with which the ranks of all tasks find each other."""

from collections.abc import Collection

from portal.workloads.lifecycle import LeaseState
from portal.workloads.models import Lease, Workload
from slipway.schemas.agent import GangMember


def gang_members(workloads: Collection[Workload]) -> dict[str, list[GangMember] | None]:
    """Return the tasks of each gang in their order, or None if some have no address yet.

    A task that runs without an address has an agent of an earlier version, which reports none. The
    list is empty then, because frameworks need the addresses of all ranks.
    """
    epochs = {workload.pk: workload.epoch for workload in workloads}
    tasks: dict[str, list[tuple[str, list[int], str]]] = {key: [] for key in epochs}
    rows = Lease.objects.filter(workload__in=epochs).order_by("index")
    for key, epoch, address, ports, state in rows.values_list(
        "workload_id", "epoch", "address", "ports", "state"
    ):
        if epochs[key] == epoch:
            tasks[key].append((address, ports, state))
    return {key: _members(rows) for key, rows in tasks.items()}


def _members(tasks: list[tuple[str, list[int], str]]) -> list[GangMember] | None:
    missing = [state for address, _, state in tasks if not address]
    if not missing:
        return [GangMember(address=address, ports=ports) for address, ports, _ in tasks]
    return [] if all(state == LeaseState.RUNNING for state in missing) else None
