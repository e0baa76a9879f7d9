"""Default deny: a route without a declared policy refuses every request.

A policy is a small frozen object that inspects a request and the captured parts of its path and
either returns or raises one of `core.errors`. Pages carry theirs by the decorator `guarded_by`,
API operations as ninja's `auth` (see `portal.api.routing`), and views of libraries are listed by
route name in `portal.config.policies`. `PolicyMiddleware` enforces them, and
`tests/house/test_policies.py` walks every route of every process and fails on one without.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from django.http import HttpRequest

View = TypeVar("View", bound=Callable[..., Any])


class Policy(Protocol):
    """Decides whether a request may reach its view."""

    def check(self, request: HttpRequest, path: dict[str, Any]) -> None:
        """Return to allow. Raise Unauthenticated, Forbidden or NotFound to refuse."""

    def describe(self) -> str:
        """Describe the permitted callers in a few words, for the authorisation matrix."""


@dataclass(frozen=True)
class Public:
    """Anonymous access. `why` justifies it."""

    why: str

    def check(self, request: HttpRequest, path: dict[str, Any]) -> None:
        """Allow."""

    def describe(self) -> str:
        return "anyone"


@dataclass(frozen=True)
class PerOperation:
    """The view dispatches by HTTP method and every operation behind it carries its own policy."""

    def check(self, request: HttpRequest, path: dict[str, Any]) -> None:
        """Allow, since the operation decides."""

    def describe(self) -> str:
        return "per operation"


def guarded_by(policy: Policy) -> Callable[[View], View]:
    """Declare the policy of a view function (or of the function returned by `as_view()`)."""

    def declare(view: View) -> View:
        view.policy = policy  # type: ignore[attr-defined]
        return view

    return declare
