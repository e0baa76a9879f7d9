"""Access policies of this app: project roles, gateway tokens and replica tokens."""

from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest

from portal.accounts.gates import ProjectObject
from portal.accounts.models import Project
from portal.accounts.principal import principal_of_bearer
from portal.accounts.tokens import hash_of
from portal.compute.tokens import bearer_of
from portal.core.errors import NotFound, Unauthenticated
from portal.endpoints.models import Endpoint, Gateway, Replica
from portal.endpoints.tokens import has_gateway_shape


class EndpointRole(ProjectObject[Endpoint]):
    """Members of the project with at least `role`, for an endpoint of that project."""

    def find(self, project: Project, path: dict[str, Any]) -> Endpoint | None:
        """Return the endpoint by its name."""
        return Endpoint.objects.of_project(project).filter(name=path["endpoint"]).first()


def gated_endpoint(request: HttpRequest) -> Endpoint:
    """Return the endpoint the gate let this request reach."""
    return EndpointRole.stored(request)


@dataclass(frozen=True)
class GatewayToken:
    """Gateways of this installation."""

    def check(self, request: HttpRequest, path: dict[str, Any]) -> None:
        """Set the gateway on the request. Raises Unauthenticated."""
        secret = bearer_of(request.headers.get("Authorization", ""))
        gateway = None
        if has_gateway_shape(secret):
            gateway = Gateway.objects.filter(token_hash=hash_of(secret)).first()
        if gateway is None:
            raise Unauthenticated(
                "The token of the gateway is unknown.",
                code="invalid_gateway_token",
                next_step="Create a new one with `manage.py gateway_token`.",
            )
        request.gated_gateway = gateway  # type: ignore[attr-defined]

    def describe(self) -> str:
        return "a gateway, with its token"


def gated_gateway(request: HttpRequest) -> Gateway:
    """Return the gateway that the policy set on this request."""
    gateway: Gateway = request.gated_gateway  # type: ignore[attr-defined]
    return gateway


@dataclass(frozen=True)
class ReplicaToken:
    """The workload of the replica in the path, with its own token, while it runs."""

    parameter: str = "replica"

    def check(self, request: HttpRequest, path: dict[str, Any]) -> None:
        """Set the replica on the request. Raises Unauthenticated, or NotFound for another one."""
        principal = principal_of_bearer(request.headers.get("Authorization", ""))
        workload_id = principal.token.pk if principal.token is not None else ""
        replicas = Replica.objects.alive().filter(pk=path[self.parameter], workload=workload_id)
        replica = replicas.select_related("revision", "endpoint__project", "workload").first()
        if replica is None:
            raise NotFound
        request.gated_replica = replica  # type: ignore[attr-defined]

    def describe(self) -> str:
        return "a replica, with the token of its workload"


def gated_replica(request: HttpRequest) -> Replica:
    """Return the replica that the policy set on this request."""
    replica: Replica = request.gated_replica  # type: ignore[attr-defined]
    return replica
