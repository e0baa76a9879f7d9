"""Presenters of node groups: use, cost, machines with what holds them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count

from portal.accounts.models import User
from portal.compute.lifecycle import MachineState
from portal.compute.models import GroupMachine, NodeGroup
from portal.core import clock
from portal.web.base.shortlist import Shortlist, shortlist
from portal.workloads.node_work import work_on

MACHINES_SHOWN = 100
_TONES = {
    MachineState.REQUESTED: "",
    MachineState.STARTING: "strong",
    MachineState.JOINED: "ok",
    MachineState.DRAINING: "warn",
    MachineState.RELEASED: "",
    MachineState.FAILED: "bad",
}


@dataclass(frozen=True)
class NodeGroupRow:
    """A group in the list, with the number of its machines in each state."""

    group: NodeGroup
    nodes: int
    starting: int
    draining: int


@dataclass(frozen=True)
class MachineRow:
    """A machine. `work` names what holds it, `words` say what else is to know of it."""

    machine: GroupMachine
    tone: str
    work: Sequence[str]
    words: str
    idle_s: float
    nano_usd: int
    overhead_nano_usd: int


def node_group_rows(groups: Sequence[NodeGroup]) -> list[NodeGroupRow]:
    """Return the rows of groups, with a fixed number of queries."""
    machines = GroupMachine.objects.open().filter(group__in=groups).order_by()
    counts = {
        (row["group_id"], row["state"]): row["count"]
        for row in machines.values("group_id", "state").annotate(count=Count("pk"))
    }
    return [
        NodeGroupRow(
            group,
            counts.get((group.pk, MachineState.JOINED), 0),
            counts.get((group.pk, MachineState.REQUESTED), 0)
            + counts.get((group.pk, MachineState.STARTING), 0),
            counts.get((group.pk, MachineState.DRAINING), 0),
        )
        for group in groups
    ]


def machine_rows(group: NodeGroup, viewer: User) -> Shortlist[MachineRow]:
    """Return the machines of a group, the newest first."""
    machines = GroupMachine.objects.filter(group=group).select_related("node", "group")
    shown = shortlist(machines.order_by("-pk"), MACHINES_SHOWN)
    work = work_on([row.node_id for row in shown if row.node_id], viewer)
    timestamp = clock.now()
    return shown.replaced_by(
        _machine_row(machine, work.get(machine.node_id or "", []), timestamp) for machine in shown
    )


def _machine_row(machine: GroupMachine, work: Sequence[str], timestamp: datetime) -> MachineRow:
    idle = machine.idle_time(timestamp)
    total = machine.total_time(timestamp)
    return MachineRow(
        machine=machine,
        tone=_TONES[MachineState(machine.state)],
        work=work,
        words=machine.failure or machine.reason or _words(machine, work, timestamp),
        idle_s=idle.total_seconds(),
        nano_usd=machine.cost(total),
        overhead_nano_usd=machine.cost(idle + machine.start_time(timestamp)),
    )


def _words(machine: GroupMachine, work: Sequence[str], timestamp: datetime) -> str:
    if work or machine.state != MachineState.JOINED or machine.node is None:
        return machine.detail
    if machine.node.state == "cordoned":
        return "Cordoned: it stays until it is uncordoned or removed."
    if machine.idle_since is None:
        return ""
    left = machine.idle_since + machine.group.idle_grace - timestamp
    if left.total_seconds() > 0:
        return f"No work. It leaves in {round(left.total_seconds())} s."
    return "No work. It stays for the least of the group, or for work that waits for more nodes."
