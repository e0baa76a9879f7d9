"""The policies of notebook servers: the project's, the owner's, the Hub's and the server's own."""

from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest

from portal.accounts.gates import ProjectObject, ProjectRole, gated_role
from portal.accounts.models import Project, User
from portal.accounts.principal import principal_of_bearer, require_principal
from portal.accounts.tokens import hash_of
from portal.compute.tokens import bearer_of
from portal.core.errors import Forbidden, NotFound, Unauthenticated
from portal.notebooks.hub_tokens import has_hub_shape
from portal.notebooks.models import Hub, Server
from portal.workloads.models import Workload
from slipway.schemas.accounts import Role, Scope


class ServerRole(ProjectObject[Server]):
    """Members of the project with at least `role`, for a server of that project."""

    def find(self, project: Project, path: dict[str, Any]) -> Server | None:
        """Return the server by its id."""
        return Server.objects.of_project(project).filter(pk=path["server"]).first()


@dataclass(frozen=True)
class ServerOwner:
    """The person whose server it is, who still contributes. `or_role` lets others pass, too."""

    scope: Scope
    or_role: Role | None = None

    def check(self, request: HttpRequest, path: dict[str, Any]) -> None:
        """Raise Unauthenticated, NotFound or Forbidden. Set the server on the request."""
        ServerRole(Role.CONTRIBUTOR, self.scope).check(request, path)
        server = gated_server(request)
        if server.owner_id == require_principal(request).user.pk:
            return
        if self.or_role is not None and gated_role(request).at_least(self.or_role):
            return
        raise not_owner(server)

    def describe(self) -> str:
        other = f" or project {self.or_role.value}" if self.or_role else ""
        return f"owner of the server{other}"


def not_owner(server: Server) -> Forbidden:
    """Return the error for somebody else's server."""
    return Forbidden(
        f"The notebook server {server.name} belongs to {server.owner.display_name}.",
        code="not_owner",
        next_step="Launch your own server, or ask a maintainer of the project to stop this one.",
    )


def check_stop(*, workload: Workload, by: User, role: Role) -> None:
    """Raise Forbidden unless somebody owns the server of a workload, or maintains its project."""
    server = Server.objects.filter(workload=workload).select_related("owner").first()
    if server is not None and server.owner_id != by.pk and not role.at_least(Role.MAINTAINER):
        raise not_owner(server)


@dataclass(frozen=True)
class WorkspaceMember:
    """Contributors of the project, themselves: with a session or a token of their own.

    The token of a job speaks for the person, too. With it, code of a colleague that somebody runs
    could read their personal folder, and write what their next server executes.
    """

    scope: Scope

    def check(self, request: HttpRequest, path: dict[str, Any]) -> None:
        """Raise Unauthenticated, NotFound or Forbidden. Set the project on the request."""
        ProjectRole(Role.CONTRIBUTOR, self.scope).check(request, path)
        token = require_principal(request).token
        if token is not None and Workload.objects.filter(pk=token.pk).exists():
            raise Forbidden(
                "Jobs and notebook servers cannot use files of workspaces through the API.",
                code="workload_token",
                next_step="Use a token of your own, or in a notebook server the files themselves.",
            )

    def describe(self) -> str:
        return "project contributor, not by a workload's token"


def gated_server(request: HttpRequest) -> Server:
    """Return the server the gate let this request reach."""
    return ServerRole.stored(request)


@dataclass(frozen=True)
class HubToken:
    """The Hub of this installation. A server in the path is set on the request."""

    parameter: str = ""

    def check(self, request: HttpRequest, path: dict[str, Any]) -> None:
        """Raise Unauthenticated, or NotFound for a server that is not there."""
        secret = bearer_of(request.headers.get("Authorization", ""))
        known = has_hub_shape(secret) and Hub.objects.filter(token_hash=hash_of(secret)).exists()
        if not known:
            raise Unauthenticated(
                "The token of the Hub is unknown.",
                code="invalid_hub_token",
                next_step="Create a new one with `manage.py hub_token`.",
            )
        if self.parameter:
            server = Server.objects.with_related().filter(pk=path[self.parameter]).first()
            if server is None:
                raise NotFound
            ServerRole.store(request, server)

    def describe(self) -> str:
        return "the Hub, with its token"


@dataclass(frozen=True)
class LabToken:
    """The workload of the server in the path, with its own token, while it runs."""

    parameter: str = "server"

    def check(self, request: HttpRequest, path: dict[str, Any]) -> None:
        """Raise Unauthenticated, or NotFound for another's server. Set it on the request."""
        principal = principal_of_bearer(request.headers.get("Authorization", ""))
        workload_id = principal.token.pk if principal.token is not None else ""
        servers = Server.objects.alive().filter(pk=path[self.parameter], workload=workload_id)
        server = servers.select_related("workload", "tier").first()
        if server is None:
            raise NotFound
        ServerRole.store(request, server)

    def describe(self) -> str:
        return "a notebook server, with the token of its workload"
