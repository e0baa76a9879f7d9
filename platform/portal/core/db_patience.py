"""Limits on the time a request waits for an unresponsive database.

A request that waits while others make progress is queued, and waits for up to `QUEUE_S`. One that
waits while nothing changes (the server is down or frozen, a lock is held indefinitely) has
`STALL_S` in all, shared by all its statements. Background work has no such limits.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from django.db import OperationalError

# A client gets its 503 within two seconds. The rest is for everything else.
STALL_S: Final = 1.2
QUEUE_S: Final = 10.0
# Interval at which waiting statements are checked.
SLICE_S: Final = 0.25
# While the database is known to be down, one slice shows whether it is back.
_STALL_IN_OUTAGE_S: Final = 0.25
_NOTHING_S: Final = 0.01


class DatabaseUnavailable(OperationalError):
    """The database did not respond within the time a request may wait."""


class DatabaseMissing(OperationalError):
    """The file of the database is missing, or was replaced. `name` is that of the file."""

    def __init__(self, name: str, *, is_replaced: bool) -> None:
        if is_replaced:
            text = (
                f"The database file {name} was replaced while Slipway was running, "
                "so nothing is read from it or written to it."
            )
        else:
            text = f"The database file {name} is missing from the data folder."
        super().__init__(text)
        self.is_replaced = is_replaced


class _Outage:
    """Outage flag: set when a request here ran out of patience, until a statement succeeds."""

    def __init__(self) -> None:
        self.is_on = False


_outage: Final = _Outage()


class Patience:
    """The rest of the time that one request may wait."""

    def __init__(self, *, queued_s: float = 0.0) -> None:
        """`queued_s` is how long the request has waited for a thread."""
        self._stall_s = _STALL_IN_OUTAGE_S if _outage.is_on else STALL_S
        self._queue_s = QUEUE_S
        # True once a change of this request was committed: a 503 afterwards must report it.
        self.is_saved = False
        self.note_queued(queued_s)

    @property
    def remaining_s(self) -> float:
        """The seconds that are left while nothing changes."""
        return self._stall_s

    @property
    def is_exhausted(self) -> bool:
        """Return whether nothing is left."""
        return self._stall_s <= _NOTHING_S or self._queue_s <= _NOTHING_S

    def refund(self, seconds: float) -> None:
        """Refund stall time that was queueing, since those in front are served in turn."""
        self._stall_s += seconds

    def note_queued(self, seconds: float) -> None:
        """Deduct the time spent in the thread queue, leaving one slice for the database."""
        self._stall_s = max(self._stall_s - seconds, min(self._stall_s, SLICE_S))

    def spend(self, seconds: float, *, progress: bool) -> None:
        """Deduct waiting time. Raise DatabaseAway when nothing is left.

        `progress` states that the database served others meanwhile.
        """
        self._queue_s -= seconds
        if not progress:
            self._stall_s -= seconds
        if self.is_exhausted:
            _outage.is_on = _outage.is_on or self._stall_s <= _NOTHING_S
            raise DatabaseUnavailable(
                "the database did not respond within the request's time limit"
            )


class LockWait:
    """Wait of one statement for others, which make progress as long as something changes."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._observed: object = None
        self._stalled_s = 0.0
        self._first_s = 0.0

    def spend(self, seconds: float, seen: object) -> None:
        """Account for a slice at whose end `seen` was observed. Raises DatabaseAway."""
        if seen is not None and seen != self._observed:
            self._observed = seen
            self._patience.refund(self._stalled_s)
            self._stalled_s = 0.0
            self._patience.spend(seconds, progress=True)
            self._first_s = seconds
            return
        # Nothing has changed since the slice before, which now counts as well.
        stalled_s, self._first_s = self._first_s + seconds, 0.0
        self._stalled_s += stalled_s
        self._patience.spend(stalled_s, progress=False)


_current: ContextVar[Patience | None] = ContextVar("db_patience", default=None)


def current() -> Patience | None:
    """Return the patience of the request that this thread serves, if it serves one."""
    return _current.get()


def note_saved() -> None:
    """Record that a change of the current request has been committed."""
    if (patience := current()) is not None:
        patience.is_saved = True


def record_response() -> None:
    """Record that the database has responded."""
    _outage.is_on = False


@contextmanager
def limited_by(patience: Patience | None) -> Iterator[None]:
    """Limit what the statements in this context wait. None limits nothing."""
    reset = _current.set(patience)
    try:
        yield
    finally:
        _current.reset(reset)
