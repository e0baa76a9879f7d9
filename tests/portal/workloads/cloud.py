"""A cloud for tests of node groups: it makes machines that boot when a test says so."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from portal.compute import provisioners
from portal.compute.models import NodeGroup
from portal.compute.provisioners import (
    MachineOrder,
    MachinePhase,
    MachineReport,
    ProvisionerAway,
    ProvisionerRefused,
    register_provisioner,
)
from portal.compute.resources import GIB, Amount
from portal.compute.services.node_groups import create_node_group
from portal.compute.services.node_registration import join_node
from portal.workloads.tasks import grow_and_shrink, schedule
from tests.portal.workloads.machines import Machine, facts


@dataclass
class Cloud:
    """The machines of one account, by name.

    `away` is the text of a call that is not answered, `refusal` that of one that is denied, and
    `loses_answers` makes machines and does not say so.
    """

    label: str = "Test cloud"
    orders: dict[str, MachineOrder] = field(default_factory=dict)
    phases: dict[str, MachinePhase] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    console: str = ""
    away: str = ""
    refusal: str = ""
    loses_answers: bool = False

    def clean(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        return dict(settings)

    def open(self, group: str, settings: Mapping[str, Any]) -> "Cloud":
        return self

    def make(self, order: MachineOrder) -> str:
        self.calls.append(f"make {order.name}")
        self._answer()
        if self.refusal:
            raise ProvisionerRefused(self.refusal)
        if order.name not in self.orders:
            self.orders[order.name] = order
            self.phases[order.name] = MachinePhase.STARTING
        if self.loses_answers:
            raise ProvisionerAway("the connection was reset")
        return f"i-{order.name}"

    def look(self) -> Mapping[str, MachineReport]:
        self._answer()
        return {
            name: MachineReport(name, f"i-{name}", phase) for name, phase in self.phases.items()
        }

    def release(self, handle: str) -> None:
        self.calls.append(f"release {handle}")
        self._answer()
        if handle.removeprefix("i-") in self.phases:
            self.phases[handle.removeprefix("i-")] = MachinePhase.GONE

    def output(self, handle: str) -> str:
        return self.console

    def _answer(self) -> None:
        if self.away:
            raise ProvisionerAway(self.away)

    def boot(self, name: str, **changes: Any) -> Machine:
        """Let the agent of a machine join and send a heartbeat."""
        order = self.orders[name]
        self.phases[name] = MachinePhase.RUNNING
        shape: dict[str, Any] = {
            "cpus": order.amount.cpu_millis / 1000,
            "gib": order.amount.memory_bytes / GIB,
            "gpus": order.amount.gpus,
            "gpu_model": order.gpu_model,
            "labels": dict(order.labels),
        }
        details = facts(**(shape | changes))
        joined = join_node(secret=order.join_token, name=name, details=details)
        machine = Machine(joined.node, joined.secret, details)
        machine.beat()
        return machine

    def boot_all(self) -> list[Machine]:
        """Let all machines that start join."""
        starting = [n for n, phase in self.phases.items() if phase is MachinePhase.STARTING]
        return [self.boot(name) for name in starting]

    def alive(self) -> list[str]:
        """Return the names of the machines that exist."""
        return [name for name, phase in self.phases.items() if phase is not MachinePhase.GONE]


@contextmanager
def registered_cloud() -> Iterator[Cloud]:
    """Register a cloud as the provisioner `cloud`."""
    before = dict(provisioners._KINDS)
    cloud = Cloud()
    register_provisioner("cloud", cloud)
    try:
        yield cloud
    finally:
        provisioners._KINDS.clear()
        provisioners._KINDS.update(before)


def make_group(name: str = "gpu", *, cpus: float = 4, gpus: int = 0, **changes: Any) -> NodeGroup:
    """Create a group of the test cloud: at most three nodes, each a dollar an hour."""
    fields: dict[str, Any] = {
        "provisioner": "cloud",
        "settings": {},
        "amount": Amount(int(cpus * 1000), 16 * GIB, gpus),
        "max_nodes": 3,
        "max_starting": 3,
        "nano_usd_per_hour": 1_000_000_000,
    }
    return create_node_group(name=name, **(fields | changes))


def step() -> None:
    """Run the scheduler and the growth of groups, as the control worker does."""
    schedule()
    grow_and_shrink()
