"""The life of a sweep and of a trial: states and allowed moves. No Django, no I/O.

A move is one guarded UPDATE on (id, state), made in `portal.sweeps.transitions` alone.
"""

from collections.abc import Mapping

from slipway.schemas.sweeps import SweepState, TrialState

_S, _T = SweepState, TrialState
MOVES: Mapping[SweepState, frozenset[SweepState]] = {
    _S.RUNNING: frozenset({_S.PAUSED, _S.FINISHED, _S.STOPPED, _S.FAILED}),
    _S.PAUSED: frozenset({_S.RUNNING, _S.STOPPED, _S.FAILED}),
    # Only an extension makes this move.
    _S.FINISHED: frozenset({_S.RUNNING}),
    _S.STOPPED: frozenset(),
    _S.FAILED: frozenset(),
}
TRIAL_MOVES: Mapping[TrialState, frozenset[TrialState]] = {
    # From running to running goes a trial whose job is submitted again.
    _T.RUNNING: frozenset({_T.RUNNING, _T.COMPLETE, _T.FAILED, _T.STOPPED, _T.PRUNED}),
    _T.COMPLETE: frozenset(),
    _T.FAILED: frozenset(),
    _T.STOPPED: frozenset(),
    # Only a promotion makes this move.
    _T.PRUNED: frozenset({_T.RUNNING}),
}


class ForbiddenSweepMove(Exception):
    """The code asked for a move that the tables do not know: a fault of ours."""


def sources(target: SweepState) -> list[SweepState]:
    """Return the states from which a sweep may move to `target`."""
    return [state for state, targets in MOVES.items() if target in targets]


def check_trial_move(source: TrialState, target: TrialState) -> None:
    """Raise ForbiddenSweepMove unless a trial may go from `source` to `target`."""
    if target not in TRIAL_MOVES[source]:
        raise ForbiddenSweepMove(f"{source.value} → {target.value}")
