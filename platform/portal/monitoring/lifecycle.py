"""State machine of alerts: states and transitions. No Django, no I/O."""

from enum import StrEnum


class AlertState(StrEnum):
    """State of an alert: `firing` while its reason holds, and `resolved`, which is final."""

    FIRING = "firing"
    RESOLVED = "resolved"


MOVES = {AlertState.FIRING: frozenset({AlertState.RESOLVED}), AlertState.RESOLVED: frozenset()}


def sources_of(target: AlertState) -> list[str]:
    """Return the states that may move to `target`."""
    return sorted(state.value for state, targets in MOVES.items() if target in targets)
