"""The life of schedules and pipelines, and of their runs: states and allowed moves. No I/O.

A move is one guarded UPDATE on (id, state), made in `portal.pipelines.transitions` and
`portal.pipelines.pipeline_transitions` alone.
"""

from collections.abc import Mapping

from slipway.schemas.pipelines import PipelineRunState, StepState
from slipway.schemas.schedules import ScheduledRunState, ScheduleState

_S, _R = ScheduleState, ScheduledRunState
_P, _T = PipelineRunState, StepState
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
PIPELINE_MOVES: Mapping[PipelineRunState, frozenset[PipelineRunState]] = {
    _P.RUNNING: frozenset({_P.SUCCEEDED, _P.FAILED, _P.CANCELLED}),
    _P.SUCCEEDED: frozenset(),
    # Only a person who resumes the run makes these moves.
    _P.FAILED: frozenset({_P.RUNNING}),
    _P.CANCELLED: frozenset({_P.RUNNING}),
}
STEP_MOVES: Mapping[StepState, frozenset[StepState]] = {
    _T.WAITING: frozenset(
        {
            *(_T.RUNNING, _T.APPROVAL, _T.SUCCEEDED, _T.REUSED),
            *(_T.SKIPPED, _T.FAILED, _T.CANCELLED),
        }
    ),
    # From running to running goes a step whose job is submitted again.
    _T.RUNNING: frozenset({_T.RUNNING, _T.SUCCEEDED, _T.REUSED, _T.FAILED, _T.CANCELLED}),
    _T.APPROVAL: frozenset({_T.SUCCEEDED, _T.FAILED, _T.CANCELLED}),
    _T.SUCCEEDED: frozenset(),
    _T.REUSED: frozenset(),
    # Only the resumption of the run makes these moves.
    _T.SKIPPED: frozenset({_T.WAITING}),
    _T.FAILED: frozenset({_T.WAITING}),
    _T.CANCELLED: frozenset({_T.WAITING}),
}


def sources(target: ScheduleState) -> list[ScheduleState]:
    """Return the states from which a schedule may move to `target`."""
    return [state for state, targets in MOVES.items() if target in targets]


def run_sources(target: ScheduledRunState) -> list[ScheduledRunState]:
    """Return the states from which a run may move to `target`."""
    return [state for state, targets in RUN_MOVES.items() if target in targets]


def pipeline_sources(target: PipelineRunState) -> list[PipelineRunState]:
    """Return the states from which a run of a pipeline may move to `target`."""
    return [state for state, targets in PIPELINE_MOVES.items() if target in targets]


def step_sources(target: StepState) -> list[StepState]:
    """Return the states from which a step may move to `target`."""
    return [state for state, targets in STEP_MOVES.items() if target in targets]
