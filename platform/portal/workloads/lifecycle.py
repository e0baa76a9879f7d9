"""The life of a workload and of a lease: states, allowed moves, and who is notified.

    submitted → admitted → queued → placed → starting → running → stopping → an end

A workload that must run again goes from any active state back to `queued`, with its leases closed.
So does one that a budget has stopped, when somebody resumes it, and one that a search has stopped
early, when it turns out to be among the best.
`epoch` counts placements: it grows with every move to `placed`, a lease belongs to exactly one, and
a message that carries an older one is stale. No Django, no I/O.
"""

from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum

from slipway.schemas.workloads import ReasonCode, WorkloadState

# A task is requeued after this long if its agent sends heartbeats but never reports a start.
START_WITHIN = timedelta(minutes=3)

_S = WorkloadState
ENDS = frozenset({_S.SUCCEEDED, _S.FAILED, _S.STOPPED, _S.LOST})
# States in which a workload holds leases, or has just closed them in the same transaction.
ACTIVE = frozenset({_S.PLACED, _S.STARTING, _S.RUNNING, _S.STOPPING})
WAITING = frozenset({_S.SUBMITTED, _S.ADMITTED, _S.QUEUED})

_AFTER_RUNNING = frozenset({_S.QUEUED, _S.SUCCEEDED, _S.FAILED, _S.STOPPED, _S.LOST})
MOVES: Mapping[WorkloadState, frozenset[WorkloadState]] = {
    _S.SUBMITTED: frozenset({_S.ADMITTED, _S.STOPPED}),
    _S.ADMITTED: frozenset({_S.QUEUED, _S.STOPPED}),
    # The engine of a pool may refuse what it is asked for.
    _S.QUEUED: frozenset({_S.PLACED, _S.STOPPED, _S.FAILED}),
    _S.PLACED: frozenset({_S.STARTING, _S.RUNNING, _S.STOPPING}) | _AFTER_RUNNING,
    _S.STARTING: frozenset({_S.RUNNING, _S.STOPPING}) | _AFTER_RUNNING,
    _S.RUNNING: frozenset({_S.STOPPING}) | _AFTER_RUNNING,
    _S.STOPPING: _AFTER_RUNNING,
    _S.SUCCEEDED: frozenset(),
    _S.FAILED: frozenset(),
    # Workloads stopped by a budget or early can be resumed. Only `services.resume` makes this move.
    _S.STOPPED: frozenset({_S.QUEUED}),
    _S.LOST: frozenset(),
}


class StopOutcome(StrEnum):
    """Outcome of a stopping workload once its last lease is closed."""

    NONE = ""
    JUDGE = "judge"  # a task ended badly: find the root cause, then run again or fail
    REQUEUE = "requeue"  # requeued by the platform: preempted, node drained
    STOP = "stop"  # stop requested


class LeaseState(StrEnum):
    """State of a task of one epoch, as its agent reports it."""

    GRANTED = "granted"
    STARTING = "starting"
    RUNNING = "running"
    ENDED = "ended"


LEASE_MOVES: Mapping[LeaseState, frozenset[LeaseState]] = {
    LeaseState.GRANTED: frozenset({LeaseState.STARTING, LeaseState.RUNNING, LeaseState.ENDED}),
    LeaseState.STARTING: frozenset({LeaseState.RUNNING, LeaseState.ENDED}),
    LeaseState.RUNNING: frozenset({LeaseState.ENDED}),
    LeaseState.ENDED: frozenset(),
}


class AllocationState(StrEnum):
    """State of an order for machines of a pool."""

    ORDERED = "ordered"
    SUBMITTED = "submitted"
    ENDED = "ended"


ALLOCATION_MOVES: Mapping[AllocationState, frozenset[AllocationState]] = {
    AllocationState.ORDERED: frozenset({AllocationState.SUBMITTED, AllocationState.ENDED}),
    AllocationState.SUBMITTED: frozenset({AllocationState.ENDED}),
    AllocationState.ENDED: frozenset(),
}


class ForbiddenTransition(Exception):
    """The code asked for a move that the table does not know: a fault of ours."""


def check_move(source: WorkloadState, target: WorkloadState) -> None:
    """Raise ForbiddenTransition unless a workload may go from `source` to `target`."""
    if target not in MOVES[source]:
        raise ForbiddenTransition(f"{source.value} → {target.value}")


def lease_sources(target: LeaseState) -> list[LeaseState]:
    """Return the states from which a lease may move to `target`."""
    return [state for state, targets in LEASE_MOVES.items() if target in targets]


OPEN_ALLOCATIONS = (AllocationState.ORDERED, AllocationState.SUBMITTED)


def allocation_sources(target: AllocationState) -> list[AllocationState]:
    """Return the states from which an allocation may move to `target`."""
    return [state for state, targets in ALLOCATION_MOVES.items() if target in targets]


def end_of_stop(reason: ReasonCode) -> WorkloadState:
    """Return the final state of a workload that was asked to end for `reason`."""
    return _S.FAILED if reason == ReasonCode.HANG else _S.STOPPED
