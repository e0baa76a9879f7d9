"""Gangs: the addresses with which ranks find each other, and ranks that never connect.

A job whose ranks do not connect trains one model in each rank and succeeds, which costs as much and
is nearly never intended. Ranks with work of their own, such as a share of the files, are legitimate
and look the same. So a job whose ranks are apart is told of it, and does not fail.
"""

from collections.abc import Collection

from django.db.models import Q

from portal.workloads.lifecycle import LeaseState
from portal.workloads.models import Lease, Workload
from portal.workloads.transitions import add_event
from slipway.schemas.agent import GangMember


def gang_members(workloads: Collection[Workload]) -> dict[str, list[GangMember] | None]:
    """Return the tasks of each gang in their order, or None if some have no address yet.

    A task that runs without an address has an agent of an earlier version, which reports none. The
    list is empty then, because frameworks need the addresses of all ranks.
    """
    epochs = {workload.pk: workload.epoch for workload in workloads}
    tasks: dict[str, list[tuple[str, list[int] | None, str]]] = {key: [] for key in epochs}
    rows = Lease.objects.filter(workload__in=epochs).order_by("index")
    for key, epoch, address, ports, state in rows.values_list(
        "workload_id", "epoch", "address", "ports", "state"
    ):
        if epochs[key] == epoch:
            tasks[key].append((address, ports, state))
    return {key: _members(rows) for key, rows in tasks.items()}


def ranks_apart_text(workload: Workload) -> str:
    """Return a sentence if no rank has connected to another one, empty otherwise."""
    if not workload.ranks_apart:
        return ""
    return (
        f"None of the {workload.nodes * workload.procs} ranks has connected to another: each may "
        "train a model of its own. If they should work together, join them in the script (Several "
        "ranks, in the documentation of training). A script with ray.init() or Dask's Client() "
        "needs the framework ray or dask (--framework)."
    )


def note_connections(workload: Workload, lease: Lease, *, connected: bool) -> None:
    """Record whether ranks of a task of the present epoch have connected to others.

    A connection outweighs earlier reports of none. The workload's ranks are apart once all of its
    tasks say so, until one says the opposite.
    """
    changed = Q(ranks_connected__isnull=True)
    if connected:
        changed |= Q(ranks_connected=False)
    if not Lease.objects.open().filter(changed, pk=lease.pk).update(ranks_connected=connected):
        return
    others = Lease.objects.of_epoch(workload).exclude(pk=lease.pk)
    apart = not connected and not others.exclude(ranks_connected=False).exists()
    marked = Workload.objects.filter(pk=workload.pk, epoch=workload.epoch, ranks_apart=not apart)
    if not marked.update(ranks_apart=apart):
        return
    workload.ranks_apart = apart
    text = ranks_apart_text(workload) or "The ranks have connected to each other."
    add_event(workload, kind="ranks_apart" if apart else "ranks_connected", message=text)


def _members(tasks: list[tuple[str, list[int] | None, str]]) -> list[GangMember] | None:
    missing = [state for address, _, state in tasks if not address]
    if not missing:
        return [GangMember(address=address, ports=ports or []) for address, ports, _ in tasks]
    return [] if all(state == LeaseState.RUNNING for state in missing) else None
