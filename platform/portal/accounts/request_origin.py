"""Where a change comes from: who, through what, from which address. Kept in a context variable.

The middleware sets it for requests; tasks and commands set their own with `acting_as`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace

import structlog

from portal.accounts.models import ApiToken, User


@dataclass(frozen=True)
class Origin:
    """Who and where; `label` stands in when no person acts (the system, a command)."""

    user: User | None = None
    token: ApiToken | None = None
    label: str = "system"
    ip: str | None = None
    request_id: str = ""


_SYSTEM = Origin()
_current: ContextVar[Origin] = ContextVar("slipway_origin")


def current_origin() -> Origin:
    """Return the origin in force."""
    return _current.get(_SYSTEM)


@contextmanager
def acting_as(origin: Origin) -> Iterator[None]:
    """Put an origin in force for the duration of a block."""
    token = _current.set(origin)
    try:
        yield
    finally:
        _current.reset(token)


def with_user(user: User, token: ApiToken | None = None) -> None:
    """Name the person in the origin in force, once the request has told who it is."""
    _current.set(replace(current_origin(), user=user, token=token))
    structlog.contextvars.bind_contextvars(user=user.pk)
