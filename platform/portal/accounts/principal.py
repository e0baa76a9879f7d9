"""Authenticated caller of a request: a person, possibly restricted by an API token."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import cast

from django.http import HttpRequest

from portal.accounts.models import ApiToken, Project, User
from portal.accounts.models.tenancy import ProjectQuerySet
from portal.accounts.request_origin import with_user
from portal.accounts.tokens import has_token_shape, hash_of
from portal.core.errors import Unauthenticated
from slipway.schemas.accounts import SERVICE_SCOPES, Scope

_ATTRIBUTE = "_slipway_principal"
# Paths that accept API tokens: the API and the metrics. Pages use the session alone, since they
# do not check the scopes of tokens.
TOKEN_DOORS = ("/api/", "/metrics")


@dataclass(frozen=True)
class Principal:
    """A signed-in person, or a service account, which always uses a token.

    `token` is set when an API token was used instead of a session.
    """

    user: User
    token: ApiToken | None = None

    @property
    def user_id(self) -> str:
        """The person's id."""
        return self.user.pk

    @property
    def key(self) -> str:
        """Key of the caller for rate limits and idempotency keys."""
        return self.token.pk if self.token else self.user.pk

    def allows(self, scope: Scope) -> bool:
        """Return True if the credential covers `scope`. A session covers every scope.

        A service account never has more than `SERVICE_SCOPES`, whatever its credential says.
        """
        if self.user.is_service_account and (self.token is None or scope not in SERVICE_SCOPES):
            return False
        return self.token is None or scope.value in self.token.scopes

    def projects(self) -> ProjectQuerySet:
        """The visible projects: the person's, or the one the token is confined to."""
        # A copy: a query set that was read keeps its rows.
        return self._projects.all()

    @cached_property
    def _projects(self) -> ProjectQuerySet:
        visible = Project.objects.visible_to(self.user)
        if self.token is not None and self.token.project_id:
            return visible.filter(pk=self.token.project_id)
        return visible


Resolver = Callable[[str], Principal | None]
_resolvers: dict[str, Resolver] = {}


def register_bearer(prefix: str, resolver: Resolver) -> None:
    """Register a resolver for bearer tokens of another app, recognised by their prefix.

    `resolver` returns the principal of a token, or None for one that is not usable.
    """
    _resolvers[prefix] = resolver


def principal_of_bearer(header: str) -> Principal:
    """Return the principal of an Authorization header. Raise Unauthenticated for a bad token."""
    scheme, _, secret = header.partition(" ")
    secret = secret.strip()
    resolver = _resolvers.get(secret[:4]) if scheme.lower() == "bearer" else None
    if resolver is not None and (principal := resolver(secret)) is not None:
        return principal
    if scheme.lower() == "bearer" and has_token_shape(secret):
        api_tokens = ApiToken.objects.usable().select_related("user", "project")
        token = api_tokens.filter(token_hash=hash_of(secret)).first()
        if token is not None:
            token.mark_used()
            return Principal(token.user, token)
    raise Unauthenticated(
        "The token is unknown, expired or revoked.",
        code="invalid_token",
        next_step="Create a new token under Settings → API tokens.",
    )


def principal_of(request: HttpRequest) -> Principal | None:
    """Return the principal of the request, or None when it is anonymous.

    An API request with an Authorization header is authenticated by that header alone: a bad token
    raises Unauthenticated even when the browser also has a session. Pages ignore the header.
    """
    if not hasattr(request, _ATTRIBUTE):
        setattr(request, _ATTRIBUTE, _recognised(request))
    principal: Principal | Unauthenticated | None = getattr(request, _ATTRIBUTE)
    if isinstance(principal, Unauthenticated):
        raise principal
    return principal


def _recognised(request: HttpRequest) -> Principal | Unauthenticated | None:
    """Authenticate the request. Return the refusal for a bad token, so that it is cached too."""
    header = request.headers.get("Authorization")
    if header is not None and request.path.startswith(TOKEN_DOORS):
        try:
            principal: Principal | None = principal_of_bearer(header)
        except Unauthenticated as refusal:
            return refusal
    else:
        principal = _from_session(request)
    if principal is not None:
        with_user(principal.user, principal.token)
    return principal


def authenticate_as(request: HttpRequest, principal: Principal) -> None:
    """Authenticate the rest of the request as that principal, whatever else it carries.

    For gates with a proof of their own, such as a signed link. A site that means to forge a request
    cannot have that proof, so the CSRF check is off.
    """
    setattr(request, _ATTRIBUTE, principal)
    request._dont_enforce_csrf_checks = True  # type: ignore[attr-defined]  # noqa: SLF001
    with_user(principal.user, principal.token)


def _from_session(request: HttpRequest) -> Principal | None:
    user = getattr(request, "user", None)
    if user is None or not user.is_authenticated or not user.is_active:
        return None
    if user.is_service_account:  # which no session can prove, see User.get_session_auth_hash
        return None
    return Principal(cast("User", user))


def require_principal(request: HttpRequest) -> Principal:
    """Return the principal of the request. Raise Unauthenticated when it is anonymous."""
    principal = principal_of(request)
    if principal is None:
        raise Unauthenticated(
            "This needs a signed-in user or an API token.",
            next_step="Sign in, or send `Authorization: Bearer <token>`.",
        )
    return principal
