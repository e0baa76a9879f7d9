"""State machines of endpoints, revisions, rollouts and replicas: states and transitions. No I/O.

    endpoint   creating → serving ⇄ paused → deleting → deleted, creating → failed → creating
    revision   preparing → ready → serving ⇄ standby → retired → preparing, or failed
    rollout    planned → running (step i) → baking → done, any of them → rolling_back → rolled_back
    replica    starting → loading → warming → ready → draining → stopping → stopped, or failed

A revision in `standby` is still warm: one change of weights moves traffic back to it.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar


class EndpointState(StrEnum):
    """State of an endpoint."""

    CREATING = "creating"
    SERVING = "serving"
    PAUSED = "paused"
    FAILED = "failed"
    DELETING = "deleting"
    DELETED = "deleted"


class RevisionState(StrEnum):
    """State of a revision."""

    PREPARING = "preparing"
    READY = "ready"
    SERVING = "serving"
    STANDBY = "standby"
    RETIRED = "retired"
    FAILED = "failed"


class RolloutState(StrEnum):
    """State of a rollout. `running` covers the steps before the last, `baking` is the last step."""

    PLANNED = "planned"
    RUNNING = "running"
    BAKING = "baking"
    DONE = "done"
    ROLLING_BACK = "rolling_back"
    ROLLED_BACK = "rolled_back"


class ReplicaState(StrEnum):
    """State of a replica. Only `ready` replicas are in the gateways' snapshot."""

    STARTING = "starting"
    LOADING = "loading"
    WARMING = "warming"
    READY = "ready"
    DRAINING = "draining"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"


State = TypeVar("State", bound=StrEnum)
Moves = Mapping[State, frozenset[State]]

_E, _V, _O, _P = EndpointState, RevisionState, RolloutState, ReplicaState
ENDPOINT_MOVES: Moves[EndpointState] = {
    _E.CREATING: frozenset({_E.SERVING, _E.FAILED, _E.DELETING}),
    _E.SERVING: frozenset({_E.PAUSED, _E.DELETING}),
    _E.PAUSED: frozenset({_E.SERVING, _E.DELETING}),
    _E.FAILED: frozenset({_E.CREATING, _E.DELETING}),
    _E.DELETING: frozenset({_E.DELETED}),
    _E.DELETED: frozenset(),
}
REVISION_MOVES: Moves[RevisionState] = {
    _V.PREPARING: frozenset({_V.READY, _V.RETIRED, _V.FAILED}),
    _V.READY: frozenset({_V.SERVING, _V.STANDBY, _V.RETIRED, _V.FAILED}),
    _V.SERVING: frozenset({_V.STANDBY, _V.RETIRED, _V.FAILED}),
    _V.STANDBY: frozenset({_V.SERVING, _V.RETIRED, _V.FAILED}),
    _V.RETIRED: frozenset({_V.PREPARING}),
    _V.FAILED: frozenset(),
}
_BACK = frozenset({_O.ROLLING_BACK})
ROLLOUT_MOVES: Moves[RolloutState] = {
    _O.PLANNED: frozenset({_O.RUNNING, _O.BAKING}) | _BACK,
    _O.RUNNING: frozenset({_O.RUNNING, _O.BAKING, _O.DONE}) | _BACK,
    _O.BAKING: frozenset({_O.DONE}) | _BACK,
    _O.DONE: frozenset(),
    _O.ROLLING_BACK: frozenset({_O.ROLLED_BACK}),
    _O.ROLLED_BACK: frozenset(),
}
_GOING = frozenset({_P.DRAINING, _P.STOPPING, _P.STOPPED, _P.FAILED})
REPLICA_MOVES: Moves[ReplicaState] = {
    _P.STARTING: frozenset({_P.LOADING, _P.WARMING, _P.READY}) | _GOING,
    _P.LOADING: frozenset({_P.WARMING, _P.READY}) | _GOING,
    _P.WARMING: frozenset({_P.READY}) | _GOING,
    _P.READY: _GOING,
    _P.DRAINING: frozenset({_P.STOPPING, _P.STOPPED, _P.FAILED}),
    _P.STOPPING: frozenset({_P.STOPPED, _P.FAILED}),
    _P.STOPPED: frozenset(),
    _P.FAILED: frozenset(),
}

# Revisions that should have replicas, those in the gateways' snapshot, and active rollouts.
KEPT = frozenset({_V.PREPARING, _V.READY, _V.SERVING, _V.STANDBY})
ROUTED = frozenset({_V.READY, _V.SERVING, _V.STANDBY})
UNDER_WAY = frozenset({_O.PLANNED, _O.RUNNING, _O.BAKING, _O.ROLLING_BACK})
COMING = frozenset({_P.STARTING, _P.LOADING, _P.WARMING})
OVER = frozenset({_P.STOPPED, _P.FAILED})


class ForbiddenEndpointTransition(Exception):
    """The code requested a transition to a state that no table allows: an internal error."""


def sources_of(moves: Moves[State], target: State) -> list[State]:
    """Return the states from which a row may move to `target`.

    Raises ForbiddenEndpointTransition if there are none.
    """
    states = [state for state, targets in moves.items() if target in targets]
    if not states:
        raise ForbiddenEndpointTransition(f"nothing becomes {target.value}")
    return states
