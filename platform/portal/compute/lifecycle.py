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


class BuildState(StrEnum):
    """State of the build of an environment on one node."""

    BUILDING = "building"
    READY = "ready"
    FAILED = "failed"


NODE_MOVES: Mapping[NodeState, frozenset[NodeState]] = {
    NodeState.READY: frozenset({NodeState.CORDONED, NodeState.DRAINING, NodeState.REMOVED}),
    NodeState.CORDONED: frozenset({NodeState.READY, NodeState.DRAINING, NodeState.REMOVED}),
    NodeState.DRAINING: frozenset({NodeState.READY, NodeState.CORDONED, NodeState.REMOVED}),
    NodeState.REMOVED: frozenset(),
}
# Transitions of one build. Building again is a new build with the next number.
BUILD_MOVES: Mapping[BuildState, frozenset[BuildState]] = {
    BuildState.BUILDING: frozenset({BuildState.READY, BuildState.FAILED}),
    BuildState.READY: frozenset(),
    BuildState.FAILED: frozenset(),
}


def node_sources(target: NodeState) -> list[NodeState]:
    """Return the states from which a node may move to `target`."""
    return [state for state, targets in NODE_MOVES.items() if target in targets]


def build_sources(target: BuildState) -> list[BuildState]:
    """Return the states from which a build may move to `target`."""
    return [state for state, targets in BUILD_MOVES.items() if target in targets]
