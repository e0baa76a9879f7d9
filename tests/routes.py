"""Every address the portal answers at, walked from the URL resolver itself."""

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from django.urls import URLPattern, URLResolver, get_resolver
from ninja.operation import Operation, PathView

from portal.api.routing import Gate
from portal.config.policies import policy_of
from portal.core.policy import Policy

VERBS = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE")
API = "/api/"
_CONVERTER = re.compile(r"<(?:[a-z_]+:)?([a-z_0-9]+)>", re.IGNORECASE)
_GROUP = re.compile(r"\(\?P<([a-z_0-9]+)>(?:[^()\\]|\\.)*\)", re.IGNORECASE)


@dataclass(frozen=True)
class Route:
    """One address: `template` is how people write it, `name` how the code reverses it."""

    template: str
    name: str
    view: Callable[..., Any]
    policy: Policy | None
    operations: tuple[Operation, ...] = ()

    @property
    def is_api(self) -> bool:
        """Whether it belongs to the REST API."""
        return self.template.startswith(API)

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the captured parts of the path."""
        return tuple(re.findall(r"{([^}]+)}", self.template))

    @property
    def methods(self) -> frozenset[str]:
        """The verbs of an API route; empty for a page, which tells only by answering."""
        return frozenset(verb for operation in self.operations for verb in operation.methods)

    def operation(self, verb: str) -> Operation | None:
        """Return the API operation behind a verb."""
        return next((operation for operation in self.operations if verb in operation.methods), None)

    def policy_for(self, verb: str) -> Policy | None:
        """Return the policy in force for a verb: the operation's gate, or the page's own."""
        operation = self.operation(verb)
        gates = gates_of(operation) if operation else []
        return gates[0].policy if gates else self.policy

    def path(self, **values: str) -> str:
        """Return the concrete path."""
        return self.template.format(**values)


def gates_of(operation: Operation) -> list[Gate]:
    """Return the gates of an API operation; exactly one, if the house is in order."""
    return [auth for auth in operation.auth_callbacks if isinstance(auth, Gate)]


def path_view_of(view: Callable[..., Any]) -> PathView | None:
    """Return what ninja put behind a view, or None for any other view."""
    closed_over = inspect.getclosurevars(view).nonlocals if inspect.isfunction(view) else {}
    owner = closed_over.get("self")
    return owner if isinstance(owner, PathView) else None


def template_of(pattern: str) -> str:
    """Write a Django pattern as `/projects/{project}`."""
    plain = _CONVERTER.sub(r"{\1}", _GROUP.sub(r"{\1}", pattern))
    return "/" + plain.replace("^", "").replace("$", "").replace("\\", "").lstrip("/")


def walk(resolver: URLResolver, prefix: str = "", namespace: str = "") -> Iterator[Route]:
    """Yield every route below a resolver, includes and namespaces among them."""
    for pattern in resolver.url_patterns:
        at = prefix + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            inner = f"{namespace}{pattern.namespace}:" if pattern.namespace else namespace
            yield from walk(pattern, at, inner)
        elif isinstance(pattern, URLPattern):
            name = namespace + (pattern.name or "")
            behind = path_view_of(pattern.callback)
            yield Route(
                template=template_of(at),
                name=name,
                view=pattern.callback,
                policy=policy_of(pattern.callback, name),
                operations=tuple(behind.operations) if behind else (),
            )
        else:
            raise TypeError(f"unknown kind of route: {pattern!r}")


@cache
def every_pattern() -> tuple[Route, ...]:
    """Return every pattern; ninja writes one for each operation of a path."""
    return tuple(walk(get_resolver()))


@cache
def routes() -> tuple[Route, ...]:
    """Return every address once, in the order in which Django matches them."""
    by_template: dict[str, Route] = {}
    for route in every_pattern():
        by_template.setdefault(route.template, route)
    return tuple(by_template.values())
