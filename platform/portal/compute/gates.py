"""Access policies of the agent API, where a node has a token, and of named environments."""

from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest

from portal.accounts.gates import ProjectObject
from portal.accounts.models import Project
from portal.accounts.tokens import hash_of
from portal.compute.models import NamedEnvironment, Node
from portal.compute.tokens import bearer_of, has_node_shape
from portal.core.errors import Unauthenticated


@dataclass(frozen=True)
class NodeToken:
    """Agents of nodes that belong to the installation."""

    def check(self, request: HttpRequest, path: dict[str, Any]) -> None:
        """Store the node on the request. Raise Unauthenticated for an unknown node token."""
        secret = bearer_of(request.headers.get("Authorization", ""))
        node = None
        if has_node_shape(secret):
            node = Node.objects.present().filter(token_hash=hash_of(secret)).first()
        if node is None:
            raise Unauthenticated(
                "The node token is unknown, or the node was removed.",
                code="invalid_node_token",
                next_step="Join the machine again with a new join token.",
            )
        request.gated_node = node  # type: ignore[attr-defined]

    def describe(self) -> str:
        return "a node, with its token"


def gated_node(request: HttpRequest) -> Node:
    """Return the node stored by the gate of this request."""
    node: Node = request.gated_node  # type: ignore[attr-defined]
    return node


class EnvironmentRole(ProjectObject[NamedEnvironment]):
    """Members of the project with at least `role`, for a named environment of that project."""

    def find(self, project: Project, path: dict[str, Any]) -> NamedEnvironment | None:
        """Return the environment by its name."""
        environments = NamedEnvironment.objects.of_project(project).select_related("project")
        return environments.filter(name=path["environment"]).first()


def gated_environment(request: HttpRequest) -> NamedEnvironment:
    """Return the named environment the gate let this request reach."""
    return EnvironmentRole.stored(request)
