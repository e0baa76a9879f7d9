"""Continuous authorization of open streams."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from hmac import compare_digest

from django.contrib.sessions.models import Session
from django.http import HttpRequest

from portal.accounts.gates import gated_project
from portal.accounts.models import User
from portal.accounts.models.tenancy import role_in
from portal.accounts.principal import Principal, principal_of_bearer, require_principal
from portal.core import clock
from portal.core.errors import Unauthenticated
from slipway.schemas.accounts import Role, Scope


@dataclass(frozen=True)
class StreamAuthorization:
    """Credentials of a stream: a token, or the session of a browser.

    `proof` is the hash that ties a session to the person's password.
    """

    user_id: str
    project_id: str
    bearer: str = field(default="", repr=False)
    session_key: str = field(default="", repr=False)
    proof: str = field(default="", repr=False)


def right_of(request: HttpRequest) -> StreamAuthorization:
    """Describe the credentials of a request that its gate has admitted."""
    principal = require_principal(request)
    project = gated_project(request)
    if principal.token is not None:
        bearer = request.headers.get("Authorization", "")
        return StreamAuthorization(principal.user_id, project.pk, bearer=bearer)
    return StreamAuthorization(
        principal.user_id,
        project.pk,
        session_key=request.session.session_key or "",
        proof=principal.user.get_session_auth_hash(),
    )


def still_allowed(rights: Iterable[StreamAuthorization]) -> set[StreamAuthorization]:
    """Return the credentials that are still valid. Each is checked once for all its streams."""
    return {right for right in set(rights) if _holds(right)}


def _holds(right: StreamAuthorization) -> bool:
    return may_still(right, role=Role.VIEWER, scope=Scope.WORKLOADS_READ)


def may_still(right: StreamAuthorization, *, role: Role, scope: Scope) -> bool:
    """Return whether credentials are valid, with at least a role in their project and a scope."""
    principal = _principal(right)
    if principal is None or not principal.allows(scope):
        return False
    project = principal.projects().live().filter(pk=right.project_id).first()
    current = None if project is None else role_in(principal.user, project)
    return current is not None and current.at_least(role)


def _principal(right: StreamAuthorization) -> Principal | None:
    if right.bearer:
        try:
            return principal_of_bearer(right.bearer)
        except Unauthenticated:
            return None
    session = Session.objects.filter(session_key=right.session_key, expire_date__gt=clock.now())
    user = User.objects.filter(pk=right.user_id, is_active=True).first()
    if user is None or not session.exists():
        return None
    same = compare_digest(user.get_session_auth_hash(), right.proof)
    return Principal(user) if same else None
