"""Default deny, enforced: every view needs a policy, its own or one listed here by route name."""

from collections.abc import Callable
from typing import Any

import structlog
from django.conf import settings
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.urls import reverse

from portal.accounts.gates import SignedIn
from portal.api.problems import error_response
from portal.core.errors import Forbidden, NotFound, SlipwayError, Unauthenticated
from portal.core.policy import PerOperation, Policy, Public
from portal.web.base.error_pages import error_page
from slipway.schemas.base import forbidden_character

log = structlog.get_logger(__name__)
_ANYONE_SIGNS_IN = Public("nobody is signed in yet; allauth rate-limits and always responds alike")
_PROTOCOL = Public("the protocol authenticates the client itself")
_SIGNED_IN = SignedIn()
# Library views may treat other methods as POST or GET. Forms need no more than these.
_PAGE_METHODS = ("GET", "HEAD", "OPTIONS", "POST")

_OF_APIS = ("api:", "agent:", "gateway:", "hub:")

# Views of libraries, by route name.
LIBRARY_POLICIES: dict[str, Policy] = {
    "account_login": _ANYONE_SIGNS_IN,
    "account_logout": Public("signing out must always work"),
    "account_signup": Public("open only to the bearer of an open invitation (AccountAdapter)"),
    "account_inactive": _ANYONE_SIGNS_IN,
    "account_reset_password": _ANYONE_SIGNS_IN,
    "account_reset_password_done": _ANYONE_SIGNS_IN,
    "account_reset_password_from_key": Public("the key in the address is the proof"),
    "account_reset_password_from_key_done": _ANYONE_SIGNS_IN,
    "account_change_password": _SIGNED_IN,
    "oauth2_provider:authorize": _SIGNED_IN,
    "oauth2_provider:token": _PROTOCOL,
    "oauth2_provider:revoke-token": _PROTOCOL,
    "oauth2_provider:user-info": _PROTOCOL,
    "oauth2_provider:oidc-connect-discovery-info": Public("public by the OpenID standard"),
    "oauth2_provider:jwks-info": Public("public keys"),
    "api:openapi-json": Public("the API schema is public; its data is not"),
    "api:openapi-view": Public("the API schema is public; its data is not"),
    "api:api-root": Public("answers 404"),
    "agent:api-root": Public("answers 404"),
    "gateway:api-root": Public("answers 404"),
    "hub:api-root": Public("answers 404"),
}


def policy_of(view: Callable[..., Any], route_name: str) -> Policy | None:
    """Return the policy of a view, or None when it declares none."""
    own: Policy | None = getattr(view, "policy", None)
    if own is not None:
        return own
    if route_name in LIBRARY_POLICIES:
        return LIBRARY_POLICIES[route_name]
    # Views of our API fan out by method; `require_gates` has checked every operation behind them.
    return PerOperation() if route_name.startswith(_OF_APIS) else None


class PolicyMiddleware:
    """Checks the policy before the view runs."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_view(
        self,
        request: HttpRequest,
        view: Callable[..., Any],
        _args: list[Any],
        path: dict[str, Any],
    ) -> HttpResponse | None:
        """Return None to run the view, or the refusal."""
        if not request.path.startswith("/api/") and request.method not in _PAGE_METHODS:
            return HttpResponseNotAllowed(_PAGE_METHODS)
        name = request.resolver_match.view_name if request.resolver_match else ""
        policy = policy_of(view, name)
        try:
            if any(forbidden_character(str(part)) for part in path.values()):
                raise NotFound  # no object has such a name, and PostgreSQL refuses it in queries
            if policy is None:
                log.error("route_without_policy", route=name, path=request.path)
                raise Forbidden(
                    "This address has no access policy, so all access is denied.",
                    next_step="This is a bug in Slipway: report the address to an administrator.",
                )
            policy.check(request, path)
        except SlipwayError as error:
            return _refuse(request, error)
        return None


def _refuse(request: HttpRequest, error: SlipwayError) -> HttpResponse:
    if request.path.startswith("/api/"):
        return error_response(request, error)
    if isinstance(error, Unauthenticated):
        return _to_sign_in(request)
    if isinstance(error, NotFound) and not request.user.is_authenticated:
        return _to_sign_in(request)
    return error_page(request, error)


def _to_sign_in(request: HttpRequest) -> HttpResponse:
    sign_in = reverse(settings.LOGIN_URL)
    if request.headers.get("HX-Request") == "true":
        response = HttpResponse(status=204)
        response.headers["HX-Redirect"] = sign_in
        return response
    if request.headers.get("Accept", "").startswith("text/event-stream"):
        return HttpResponse(status=401)
    target = request.get_full_path() if request.method == "GET" else "/"
    return redirect_to_login(target, sign_in)
