"""Provisioners: services that make machines for the node groups of this installation.

A machine that they make runs our node agent, which joins with a one-time token as a node like any
other. Our scheduler decides what runs there. Only the control worker calls a provisioner.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from portal.compute.resources import Amount


class MachinePhase(StrEnum):
    """State of a machine, as its provisioner reports it."""

    STARTING = "starting"
    RUNNING = "running"
    # It is being ended, and what it costs has an end.
    ENDING = "ending"
    GONE = "gone"


@dataclass(frozen=True)
class MachineOrder:
    """A machine to make. `name` is unique for ever, and is the name of the node that joins.

    `labels` are those of the node. `join_token` joins this node once, and expires soon.
    """

    name: str
    amount: Amount
    gpu_model: str
    labels: tuple[tuple[str, str], ...]
    join_token: str


@dataclass(frozen=True)
class MachineReport:
    """A machine that exists. `detail` is the provisioner's text on its state."""

    name: str
    handle: str
    phase: MachinePhase
    detail: str = ""


class ProvisionerAway(Exception):
    """The provisioner does not answer, or not usefully. The call may be repeated."""


class ProvisionerRefused(Exception):
    """The provisioner does not make the machine. The text is for administrators and people."""


class Provisioner(Protocol):
    """A service that makes machines, with the settings of one group. Calls raise ProvisionerAway.

    Machines are tagged with the id of their group, so that none is lost track of.
    """

    def make(self, order: MachineOrder) -> str:
        """Make a machine and return the provisioner's handle of it.

        An order with the name of an earlier one makes no second machine and returns the handle of
        the first: a lost answer costs nothing. Raises ProvisionerRefused.
        """

    def look(self) -> Mapping[str, MachineReport]:
        """Report on all machines of the group, by name. A machine that is gone may be left out."""

    def release(self, handle: str) -> None:
        """End a machine, whatever runs there. One that is gone already is no error."""

    def output(self, handle: str) -> str:
        """Return the end of the console of a machine, empty where it has none."""


class ProvisionerKind(Protocol):
    """A kind of provisioner: checks the settings of a group, and opens it."""

    @property
    def label(self) -> str:
        """The name that people read, such as "Amazon EC2"."""

    def clean(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return checked settings. Raises InvalidInput, which names the field."""

    def open(self, group: str, settings: Mapping[str, Any]) -> Provisioner:
        """Return the provisioner of a group, given the group's id. Raises ProvisionerAway."""


_KINDS: dict[str, ProvisionerKind] = {}


def register_provisioner(name: str, kind: ProvisionerKind) -> None:
    """Register a kind of provisioner under the name that groups store."""
    _KINDS[name] = kind


def provisioner_kinds() -> Mapping[str, ProvisionerKind]:
    """Return all kinds by name."""
    return _KINDS


def provisioner_label(name: str) -> str:
    """Return the name of a kind that people read."""
    return _KINDS[name].label if name in _KINDS else name
