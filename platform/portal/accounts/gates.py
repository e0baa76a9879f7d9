"""The policies of routes: access checks that also fetch the object of the request.

A gate that lets a request through stores what it fetched on the request, so that a view never
fetches by id itself: `gated_project(request)`, `gated_team(request)`, `gated_role(request)`.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from django.conf import settings
from django.http import HttpRequest
from django.utils.crypto import constant_time_compare

from portal.accounts.models import Project, Team
from portal.accounts.models.tenancy import role_in
from portal.accounts.principal import Principal, require_principal
from portal.core.errors import Forbidden, NotFound
from slipway.schemas.accounts import SERVICE_SCOPES, Role, Scope

T = TypeVar("T")


def require_scope(principal: Principal, scope: Scope | None) -> None:
    """Raise Forbidden for a token without the scope, or a scope of people for others."""
    if scope is not None and principal.user.is_service_account and scope not in SERVICE_SCOPES:
        raise Forbidden(
            f"Service accounts cannot have the scope {scope.value}.",
            code="person_needed",
            next_step="Ask a maintainer of the project to do this.",
        )
    if principal.token is not None and not principal.token.scopes:
        # The token of a replica, which fetches its spec with it. The code of its model can read it.
        raise Forbidden(
            "This token carries no scope, so it cannot use the API.",
            code="missing_scope",
            next_step="Create a token with the scopes you need under Settings → API tokens.",
        )
    if scope is not None and not principal.allows(scope):
        raise Forbidden(
            f"This token does not carry the scope {scope.value}.",
            code="missing_scope",
            next_step=f"Create a token with the scope {scope.value} under Settings → API tokens.",
        )


def _require_role(held: Role | None, needed: Role, what: str) -> Role:
    if held is None:
        raise NotFound
    if not held.at_least(needed):
        raise Forbidden(
            f"This needs the role {needed.value}; you are {held.value} of this {what}.",
            code="role_too_low",
            next_step=f"Ask an owner of the {what} for the role {needed.value}.",
        )
    return held


def _refuse_confined(principal: Principal) -> None:
    if principal.token is not None and principal.token.project_id:
        raise Forbidden(
            "This token is limited to one project.",
            code="token_confined",
            next_step="Use a token that is not limited to a project.",
        )


@dataclass(frozen=True)
class SignedIn:
    """Any active person. With `confined`, tokens confined to a project may pass too."""

    scope: Scope | None = None
    confined: bool = False

    def check(self, request: HttpRequest, path: dict[str, Any]) -> None:
        """Raise Unauthenticated or Forbidden."""
        principal = require_principal(request)
        require_scope(principal, self.scope)
        if not self.confined:
            _refuse_confined(principal)

    def describe(self) -> str:
        return "signed in"


@dataclass(frozen=True)
class Administrator:
    """Administrators of the installation. This alone gives no access to projects."""

    scope: Scope = Scope.ADMIN

    def check(self, request: HttpRequest, path: dict[str, Any]) -> None:
        """Raise Unauthenticated or Forbidden."""
        principal = require_principal(request)
        if not principal.user.is_administrator:
            raise Forbidden(
                "This needs an administrator.",
                code="not_administrator",
                next_step="Ask an administrator of this installation.",
            )
        _refuse_confined(principal)
        require_scope(principal, self.scope)

    def describe(self) -> str:
        return "administrator"


@dataclass(frozen=True)
class ProjectRole:
    """Members of the project named in the path, with at least `role`.

    `archived` lets the request reach an archived project too (to view it or restore it).
    """

    role: Role
    scope: Scope
    archived: bool = False
    parameter: str = "project"

    def check(self, request: HttpRequest, path: dict[str, Any]) -> None:
        """Raise Unauthenticated, NotFound (not a member) or Forbidden (role or scope too low)."""
        principal = require_principal(request)
        projects = principal.projects().select_related("team")
        project = projects.filter(slug=path[self.parameter]).first()
        if project is None:
            raise NotFound
        role = _require_role(role_in(principal.user, project), self.role, "project")
        require_scope(principal, self.scope)
        if project.archived_at is not None and not (self.archived and role.at_least(Role.OWNER)):
            raise NotFound
        request.gated_project = project  # type: ignore[attr-defined]
        request.gated_role = role  # type: ignore[attr-defined]

    def describe(self) -> str:
        return f"project {self.role.value}"


@dataclass(frozen=True)
class ProjectObject(ABC, Generic[T]):
    """Members of the project in the path, with at least `role`, for an object of that project.

    A subclass finds the object that the path names. What it does not find does not exist, whether
    it is missing or another project's. Views get the object by `stored`.
    """

    role: Role
    scope: Scope

    @abstractmethod
    def find(self, project: Project, path: dict[str, Any]) -> T | None:
        """Return the object of the project that the path names, or None."""

    def check(self, request: HttpRequest, path: dict[str, Any]) -> None:
        """Raise Unauthenticated, NotFound or Forbidden. Store the object on the request."""
        ProjectRole(self.role, self.scope).check(request, path)
        target = self.find(gated_project(request), path)
        if target is None:
            raise NotFound
        self.store(request, target)

    def describe(self) -> str:
        return f"project {self.role.value}"

    @classmethod
    def store(cls, request: HttpRequest, target: T) -> None:
        """Store an object that a gate has found on the request."""
        setattr(request, f"gated_by_{cls.__name__}", target)

    @classmethod
    def stored(cls, request: HttpRequest) -> T:
        """Return the object that the gate of this request found."""
        target: T = getattr(request, f"gated_by_{cls.__name__}")
        return target


@dataclass(frozen=True)
class TeamRole:
    """Members of the team named in the path, with at least `role`."""

    role: Role
    scope: Scope
    parameter: str = "team"

    def check(self, request: HttpRequest, path: dict[str, Any]) -> None:
        """Raise Unauthenticated, NotFound (not a member) or Forbidden (role or scope too low)."""
        principal = require_principal(request)
        team = Team.objects.visible_to(principal.user).filter(slug=path[self.parameter]).first()
        if team is None:
            raise NotFound
        role = _require_role(role_in(principal.user, team), self.role, "team")
        _refuse_confined(principal)
        require_scope(principal, self.scope)
        request.gated_team = team  # type: ignore[attr-defined]
        request.gated_role = role  # type: ignore[attr-defined]

    def describe(self) -> str:
        return f"team {self.role.value}"


@dataclass(frozen=True)
class MetricsReader:
    """A scraper with the token of `keys/metrics.key`, or an administrator.

    Being on this machine proves nothing: jobs and notebooks may run here, too.
    """

    def check(self, request: HttpRequest, path: dict[str, Any]) -> None:
        """Raise Unauthenticated or Forbidden."""
        expected = f"Bearer {settings.SLIPWAY_METRICS_TOKEN}"
        credential = request.headers.get("Authorization", "")
        if not constant_time_compare(credential, expected):
            Administrator().check(request, path)

    def describe(self) -> str:
        return "the metrics token, or an administrator"


def gated_project(request: HttpRequest) -> Project:
    """Return the project stored by the gate of this request."""
    project: Project = request.gated_project  # type: ignore[attr-defined]
    return project


def gated_team(request: HttpRequest) -> Team:
    """Return the team stored by the gate of this request."""
    team: Team = request.gated_team  # type: ignore[attr-defined]
    return team


def gated_role(request: HttpRequest) -> Role:
    """Return the role stored by the gate of this request."""
    role: Role = request.gated_role  # type: ignore[attr-defined]
    return role
