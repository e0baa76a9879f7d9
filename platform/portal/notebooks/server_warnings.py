"""The words by which a server is warned of its stop, and what they are known by."""

from typing import Final

# Beginning of a warning that is withdrawn when there is activity.
IDLE: Final = "No activity for"
LIFETIME_ENDS: Final = "It reaches its maximum lifetime."
_CHOSEN: Final = "UTC, as scheduled."


def describe_schedule(at: str) -> str:
    """Return why a server stops at a time of day."""
    return f"It stops at {at} {_CHOSEN}"


def is_idle_warning(why: str) -> bool:
    """Return True if activity in the server withdraws this warning."""
    return why.startswith(IDLE)


def is_schedule_warning(why: str) -> bool:
    """Return True if the warning is of a stop by schedule."""
    return why.endswith(_CHOSEN)
