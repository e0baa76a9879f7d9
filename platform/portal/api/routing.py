"""Declaration of the policy of an API operation: `auth=gate(ProjectRole(...))`."""

import difflib
from copy import copy
from typing import Any
from urllib.parse import unquote, unquote_to_bytes

from django.http import HttpRequest, HttpResponse
from ninja import NinjaAPI
from ninja.operation import Operation
from ninja.security.base import AuthBase
from ninja.utils import check_csrf

from portal.accounts.principal import principal_of
from portal.core.errors import Forbidden, InvalidInput
from portal.core.policy import Policy


class AnsweredBefore(Exception):
    """The request is allowed, and a stored response is replayed as `answer`."""

    def __init__(self, answer: HttpResponse) -> None:
        super().__init__("answered before")
        self.answer = answer


def answer_behind_the_gate(request: HttpRequest, answer: HttpResponse) -> None:
    """Let the operation's gate decide about the request, then return `answer`."""
    request.answered_before = answer  # type: ignore[attr-defined]


class Gate(AuthBase):
    """Ninja's `auth` with a policy, shown in OpenAPI as a bearer token.

    `parameters` are the query parameters of the operation, `lists` those that may have several
    values. `require_gates` sets both.
    """

    openapi_type: str = "http"
    openapi_scheme: str = "bearer"

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.policy = policy
        self.parameters: frozenset[str] = frozenset()
        self.lists: frozenset[str] = frozenset()

    def __call__(self, request: HttpRequest) -> Any:
        """Return a truthy value to allow the request, or raise an error to refuse it.

        Raises InvalidInput for an unknown query parameter, for a single one that is repeated and
        for one that is not UTF-8. Raises AnsweredBefore for an allowed request with a stored
        response.
        """
        match = request.resolver_match
        self.policy.check(request, dict(match.kwargs) if match else {})
        principal = principal_of(request)
        if principal is not None and principal.token is None and check_csrf(request):
            raise Forbidden(
                "The request comes from a browser session and has no CSRF token.",
                code="csrf",
                next_step="Reload the page, or use an API token.",
            )
        _refuse_unknown(request, self.parameters)
        _refuse_repeated(request, self.lists)
        _refuse_undecodable(request)
        answer = getattr(request, "answered_before", None)
        if answer is not None:
            raise AnsweredBefore(answer)
        return principal or True


def _refuse_unknown(request: HttpRequest, taken: frozenset[str]) -> None:
    """Raise InvalidInput for an unknown query parameter.

    If it were ignored, a mistyped filter would list everything.
    """
    unknown = next((name for name in request.GET if name not in taken), None)
    if unknown is None:
        return
    near = difflib.get_close_matches(unknown[:100], taken, n=1)
    message = f"Did you mean {near[0]}? " if near else ""
    name = ascii(unknown[:100])[1:-1]  # it is shown on terminals, too
    raise InvalidInput(
        f"{name}: this operation has no such parameter.",
        code="unknown_parameter",
        field=name,
        next_step=message + _what_it_takes(taken),
    )


def _refuse_repeated(request: HttpRequest, lists: frozenset[str]) -> None:
    """Raise InvalidInput for a repeated single value, because parsers differ in which one counts.

    Call it after `_refuse_unknown`, so that the name is one of the operation's.
    """
    for name, values in request.GET.lists():
        if len(values) > 1 and name not in lists:
            raise InvalidInput(
                f"{name}: this parameter was given {len(values)} times.",
                code="repeated_parameter",
                field=name,
                next_step="Send it once.",
            )


def _refuse_undecodable(request: HttpRequest) -> None:
    """Raise InvalidInput for a parameter that is not UTF-8.

    Django reads other bytes as U+FFFD, and a list would be searched for that.
    """
    for part in request.META["QUERY_STRING"].split("&"):
        try:
            unquote_to_bytes(part).decode()
        except UnicodeDecodeError:
            name = ascii(unquote(part.partition("=")[0])[:100])[1:-1]
            raise InvalidInput(
                f"{name}: these bytes are not UTF-8.",
                field=name,
                next_step="Send text as UTF-8, with each byte percent-encoded.",
            ) from None


def _what_it_takes(taken: frozenset[str]) -> str:
    return f"It accepts {', '.join(sorted(taken))}." if taken else "It accepts none: leave it out."


def gate(policy: Policy) -> Gate:
    """Declare who may call an operation."""
    return Gate(policy)


class UnguardedOperation(RuntimeError):
    """An operation was declared without a policy."""


def parameters_of(operation: Operation) -> frozenset[str]:
    """Return the names of the query parameters that an operation takes."""
    models = (model for model in operation.models if model.__ninja_param_source__ == "query")
    return frozenset(name for model in models for name in model.__ninja_flatten_map__)


def lists_of(operation: Operation) -> frozenset[str]:
    """Return the names of the query parameters that may have several values."""
    models = (model for model in operation.models if model.__ninja_param_source__ == "query")
    return frozenset(name for model in models for name in model.__ninja_collection_fields__)


def require_gates(api: NinjaAPI) -> None:
    """Refuse to start with an operation without a policy, and give gates their parameters."""
    for prefix, router in api._routers:  # noqa: SLF001  (ninja offers no public walk)
        for path, view in router.path_operations.items():
            for operation in view.operations:
                gates = [auth for auth in operation.auth_callbacks if isinstance(auth, Gate)]
                if len(gates) != 1 or len(operation.auth_callbacks) != 1:
                    raise UnguardedOperation(f"{operation.methods} {prefix}{path} has no gate")
                # A gate may stand before several operations: each gets its own.
                own = copy(gates[0])
                own.parameters = parameters_of(operation)
                own.lists = lists_of(operation)
                operation.auth_callbacks = [own]
