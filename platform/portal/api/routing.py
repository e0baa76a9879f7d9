"""How an API operation declares its policy: `auth=gate(ProjectRole(...))`."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import NinjaAPI
from ninja.security.base import AuthBase
from ninja.utils import check_csrf

from portal.accounts.principal import principal_of
from portal.core.errors import Forbidden
from portal.core.policy import Policy


class AnsweredBefore(Exception):
    """The request may pass, and its answer stands already: give `answer` and run nothing."""

    def __init__(self, answer: HttpResponse) -> None:
        super().__init__("answered before")
        self.answer = answer


def answer_behind_the_gate(request: HttpRequest, answer: HttpResponse) -> None:
    """Let the operation's gate decide about the request, and then give `answer`."""
    request.answered_before = answer  # type: ignore[attr-defined]


class Gate(AuthBase):
    """Ninja's `auth` that asks a policy; shown in OpenAPI as a bearer token."""

    openapi_type: str = "http"
    openapi_scheme: str = "bearer"

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.policy = policy

    def __call__(self, request: HttpRequest) -> Any:
        """Return a truthy value to allow; raises one of our errors to refuse.

        Raises AnsweredBefore for a request that may pass and was answered before.
        """
        match = request.resolver_match
        self.policy.check(request, dict(match.kwargs) if match else {})
        principal = principal_of(request)
        if principal is not None and principal.token is None and check_csrf(request):
            raise Forbidden(
                "The request comes from a browser session without its anti-forgery token.",
                code="csrf",
                next_step="Reload the page, or use an API token.",
            )
        answer = getattr(request, "answered_before", None)
        if answer is not None:
            raise AnsweredBefore(answer)
        return principal or True


def gate(policy: Policy) -> Gate:
    """Declare who may call an operation."""
    return Gate(policy)


class UnguardedOperation(RuntimeError):
    """An operation was declared without a policy."""


def require_gates(api: NinjaAPI) -> None:
    """Refuse to start with an operation that declares no policy."""
    for prefix, router in api._routers:  # noqa: SLF001  (ninja offers no public walk)
        for path, view in router.path_operations.items():
            for operation in view.operations:
                gates = [auth for auth in operation.auth_callbacks if isinstance(auth, Gate)]
                if len(gates) != 1 or len(operation.auth_callbacks) != 1:
                    raise UnguardedOperation(f"{operation.methods} {prefix}{path} has no gate")
