"""The states of a version and the moves between them."""

from slipway.schemas.datasets import VersionState

S = VersionState
MOVES: dict[VersionState, frozenset[VersionState]] = {
    S.DRAFT: frozenset({S.CHECKING, S.PURGED}),
    S.CHECKING: frozenset({S.READY, S.REFUSED}),
    S.REFUSED: frozenset({S.CHECKING, S.PURGED}),
    S.READY: frozenset({S.DELETED, S.PURGED}),
    S.DELETED: frozenset({S.READY, S.PURGED}),
    S.PURGED: frozenset(),
}


def sources_of(target: VersionState) -> list[str]:
    """Return the states a version may come from to reach `target`."""
    return [state.value for state, targets in MOVES.items() if target in targets]
