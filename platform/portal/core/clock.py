"""The clock, always UTC-aware, in one module so that tests can freeze it."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime

_frozen: ContextVar[datetime | None] = ContextVar("slipway_frozen_clock", default=None)


def now() -> datetime:
    """Return the current time, UTC-aware."""
    return _frozen.get() or datetime.now(UTC)


@contextmanager
def frozen(at: datetime) -> Iterator[None]:
    """Freeze the clock of this context at `at`, which must be timezone-aware."""
    if at.tzinfo is None:
        raise ValueError("the clock accepts only timezone-aware datetimes")
    token = _frozen.set(at)
    try:
        yield
    finally:
        _frozen.reset(token)
