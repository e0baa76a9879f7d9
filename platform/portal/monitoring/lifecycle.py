"""States of alerts, and the moves that are allowed. No Django, no I/O."""

from enum import StrEnum


class AlertState(StrEnum):
    """`firing` while its reason stands; `resolved` for good. The next one is another alert."""

    FIRING = "firing"
    RESOLVED = "resolved"


MOVES = {AlertState.FIRING: frozenset({AlertState.RESOLVED}), AlertState.RESOLVED: frozenset()}


def sources_of(target: AlertState) -> list[str]:
    """Return the states that may move to `target`."""
    return sorted(state.value for state, targets in MOVES.items() if target in targets)
