"""Origin of a change: person, credential and address, in a context variable.

The middleware sets it for requests. Tasks and commands set their own with `origin_context`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace

import structlog

from portal.accounts.models import ApiToken, User


@dataclass(frozen=True)
class Origin:
    """Person and address of a change.

    `label` is the actor if it is no person, such as a command. Without both, the actor is the
    component that makes such changes by itself.
    """

    user: User | None = None
    token: ApiToken | None = None
    label: str = ""
    ip: str | None = None
    request_id: str = ""


_NOBODY = Origin()
_current: ContextVar[Origin] = ContextVar("slipway_origin")


def current_origin() -> Origin:
    """Return the current origin."""
    return _current.get(_NOBODY)


@contextmanager
def origin_context(origin: Origin) -> Iterator[None]:
    """Set the origin for the duration of a block."""
    token = _current.set(origin)
    try:
        yield
    finally:
        _current.reset(token)


def with_user(user: User, token: ApiToken | None = None) -> None:
    """Set the person of the current origin, once the request is authenticated."""
    _current.set(replace(current_origin(), user=user, token=token))
    structlog.contextvars.bind_contextvars(user=user.pk)
