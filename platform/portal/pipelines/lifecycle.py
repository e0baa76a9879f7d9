"""The life of a schedule and of its runs: states and allowed moves. No Django, no I/O.

A move is one guarded UPDATE on (id, state), made in `portal.pipelines.transitions` alone.
"""

from collections.abc import Mapping

from slipway.schemas.schedules import ScheduledRunState, ScheduleState

_S, _R = ScheduleState, ScheduledRunState
MOVES: Mapping[ScheduleState, frozenset[ScheduleState]] = {
    _S.ACTIVE: frozenset({_S.PAUSED}),
    _S.PAUSED: frozenset({_S.ACTIVE}),
}
RUN_MOVES: Mapping[ScheduledRunState, frozenset[ScheduledRunState]] = {
    _R.WAITING: frozenset({_R.STARTED, _R.SKIPPED, _R.REFUSED}),
    _R.STARTED: frozenset(),
    _R.SKIPPED: frozenset(),
    _R.REFUSED: frozenset(),
}


def sources(target: ScheduleState) -> list[ScheduleState]:
    """Return the states from which a schedule may move to `target`."""
    return [state for state, targets in MOVES.items() if target in targets]


def run_sources(target: ScheduledRunState) -> list[ScheduledRunState]:
    """Return the states from which a run may move to `target`."""
    return [state for state, targets in RUN_MOVES.items() if target in targets]
