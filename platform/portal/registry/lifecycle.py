"""State machine of promotion requests: states and transitions."""

from slipway.schemas.registry import RequestState

MOVES: dict[RequestState, frozenset[RequestState]] = {
    RequestState.OPEN: frozenset(
        {RequestState.APPROVED, RequestState.REJECTED, RequestState.WITHDRAWN}
    ),
    RequestState.APPROVED: frozenset({RequestState.USED, RequestState.WITHDRAWN}),
    RequestState.REJECTED: frozenset(),
    RequestState.WITHDRAWN: frozenset(),
    RequestState.USED: frozenset(),
}


def sources_of(target: RequestState) -> list[RequestState]:
    """Return the states from which a request may move to `target`."""
    return [state for state, targets in MOVES.items() if target in targets]
