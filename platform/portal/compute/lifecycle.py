"""States of nodes and of builds, and the allowed transitions. No Django, no I/O."""

from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum

# An agent sends a heartbeat every HEARTBEAT_S and must stop its tasks FENCE_S after the last one
# that succeeded. The portal revokes the lease LEASE after the last heartbeat. In between, the agent
# kills its tasks.
HEARTBEAT_S = 10.0
FENCE_S = 50.0
LEASE = timedelta(seconds=60)
# A node that missed two heartbeats gets no new work.
QUIET = timedelta(seconds=25)


class NodeState(StrEnum):
    """Desired state of a node, set by an administrator. Whether it answers is separate."""

    READY = "ready"
    CORDONED = "cordoned"
    DRAINING = "draining"
    REMOVED = "removed"


class MachineState(StrEnum):
    """State of a machine that a node group has requested of its provisioner."""

    REQUESTED = "requested"
    STARTING = "starting"
    JOINED = "joined"
    DRAINING = "draining"
    RELEASED = "released"
    FAILED = "failed"


class MachineUse(StrEnum):
    """Use of the time of a machine that is paid for. Everything but work is overhead.

    `grace` is the last idle time of a machine that left, which has no work to come. `ending` is the
    time from its release until its provisioner says that it is gone.
    """

    STARTING = "starting"
    WORK = "work"
    IDLE = "idle"
    GRACE = "grace"
    ENDING = "ending"


class BuildState(StrEnum):
    """State of the build of an environment on one node."""

    BUILDING = "building"
    READY = "ready"
    FAILED = "failed"


class HelperRequestState(StrEnum):
    """State of a request to the helper of a person."""

    WAITING = "waiting"
    TAKEN = "taken"
    ANSWERED = "answered"
    WITHDRAWN = "withdrawn"


NODE_MOVES: Mapping[NodeState, frozenset[NodeState]] = {
    NodeState.READY: frozenset({NodeState.CORDONED, NodeState.DRAINING, NodeState.REMOVED}),
    NodeState.CORDONED: frozenset({NodeState.READY, NodeState.DRAINING, NodeState.REMOVED}),
    NodeState.DRAINING: frozenset({NodeState.READY, NodeState.CORDONED, NodeState.REMOVED}),
    NodeState.REMOVED: frozenset(),
}
# A machine is requested once its row is committed, and it is gone once its provisioner says so.
MACHINE_MOVES: Mapping[MachineState, frozenset[MachineState]] = {
    MachineState.REQUESTED: frozenset({MachineState.STARTING, MachineState.FAILED}),
    MachineState.STARTING: frozenset({MachineState.JOINED, MachineState.DRAINING}),
    MachineState.JOINED: frozenset({MachineState.DRAINING}),
    MachineState.DRAINING: frozenset({MachineState.RELEASED, MachineState.FAILED}),
    MachineState.RELEASED: frozenset(),
    MachineState.FAILED: frozenset(),
}
# States in which a machine counts as a node of its group, or is about to be one.
COUNTED_MACHINES = (MachineState.REQUESTED, MachineState.STARTING, MachineState.JOINED)
OPEN_MACHINES = (*COUNTED_MACHINES, MachineState.DRAINING)
# Transitions of one build. Building again is a new build with the next number.
BUILD_MOVES: Mapping[BuildState, frozenset[BuildState]] = {
    BuildState.BUILDING: frozenset({BuildState.READY, BuildState.FAILED}),
    BuildState.READY: frozenset(),
    BuildState.FAILED: frozenset(),
}
# A request waits again when its helper is gone, or when the same has to be asked once more.
HELPER_MOVES: Mapping[HelperRequestState, frozenset[HelperRequestState]] = {
    HelperRequestState.WAITING: frozenset({HelperRequestState.TAKEN, HelperRequestState.WITHDRAWN}),
    HelperRequestState.TAKEN: frozenset({HelperRequestState.ANSWERED, HelperRequestState.WAITING}),
    HelperRequestState.ANSWERED: frozenset({HelperRequestState.WAITING}),
    HelperRequestState.WITHDRAWN: frozenset(),
}


def node_sources(target: NodeState) -> list[NodeState]:
    """Return the states from which a node may move to `target`."""
    return [state for state, targets in NODE_MOVES.items() if target in targets]


def machine_sources(target: MachineState) -> list[MachineState]:
    """Return the states from which a machine may move to `target`."""
    return [state for state, targets in MACHINE_MOVES.items() if target in targets]


def build_sources(target: BuildState) -> list[BuildState]:
    """Return the states from which a build may move to `target`."""
    return [state for state, targets in BUILD_MOVES.items() if target in targets]


def helper_sources(target: HelperRequestState) -> list[HelperRequestState]:
    """Return the states from which a request to a helper may move to `target`."""
    return [state for state, targets in HELPER_MOVES.items() if target in targets]
