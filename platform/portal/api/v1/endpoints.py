"""Operations on endpoints."""

from typing import Annotated

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router, Status
from pydantic import BaseModel, Field

from portal.accounts.gates import ProjectRole, gated_project
from portal.accounts.principal import require_principal
from portal.api.routing import gate
from portal.api.v1.endpoint_serializers import (
    endpoint_event_out,
    endpoint_out,
    replica_out,
    rollout_out,
    traffic_out,
)
from portal.api.v1.serializers import (
    ListParameters,
    PageParameters,
    PageQuery,
    announce_rest,
    page_of,
)
from portal.core.pagination import paginate
from portal.endpoints.gates import EndpointRole, gated_endpoint
from portal.endpoints.models import Endpoint, EndpointEvent
from portal.endpoints.pools import unreachable_reasons
from portal.endpoints.services import endpoints as endpoint_services
from portal.endpoints.services.endpoints import (
    change_endpoint,
)
from portal.endpoints.services.promotions import promote, roll_back
from portal.endpoints.services.queries import nodes_of, replica_page, rollouts_of
from portal.endpoints.services.traffic import traffic_of
from portal.endpoints.services.trial_request import try_out
from portal.workloads.explanations import Explainer
from slipway.schemas.accounts import Role, Scope
from slipway.schemas.base import Line, PageOf
from slipway.schemas.endpoints import (
    EndpointChange,
    EndpointEventOut,
    EndpointIn,
    EndpointOut,
    EndpointStateName,
    Promote,
    Reason,
    ReplicaOut,
    RolloutOut,
    TrafficPoint,
    TryIn,
    TryOut,
)

router = Router(tags=["Endpoints"])
_SEE = EndpointRole(Role.VIEWER, Scope.WORKLOADS_READ)
_CHANGE = EndpointRole(Role.CONTRIBUTOR, Scope.WORKLOADS_WRITE)
_ALL = "/projects/{project}/endpoints"
_ONE = "/projects/{project}/endpoints/{endpoint}"


class EndpointsQuery(PageQuery):
    """Filters, all of which must match. `q` searches in names of endpoints and models."""

    state: EndpointStateName | None = None
    q: Annotated[Line, Field(max_length=100)] = ""


class TrafficQuery(BaseModel):
    """Number of minutes."""

    minutes: int = Field(default=60, ge=1, le=1440)


def shown(endpoint: Endpoint) -> EndpointOut:
    """Serialize an endpoint after a change."""
    rows = Endpoint.objects.select_related("project", "tier", "pool", "made_by")
    return endpoint_out(rows.get(pk=endpoint.pk))


@router.get(
    _ALL,
    auth=gate(ProjectRole(Role.VIEWER, Scope.WORKLOADS_READ)),
    response=PageOf[EndpointOut],
)
def list_endpoints(
    request: HttpRequest, project: str, query: Query[EndpointsQuery]
) -> PageOf[EndpointOut]:
    """List the project's endpoints, newest first."""
    endpoints = Endpoint.objects.of_project(gated_project(request))
    rows = endpoints.matching(state=query.state or "", text=query.q)
    return page_of(paginate(rows, cursor=query.cursor, limit=query.limit), endpoint_out)


@router.post(
    _ALL,
    auth=gate(ProjectRole(Role.CONTRIBUTOR, Scope.WORKLOADS_WRITE)),
    response={201: EndpointOut},
)
def create_endpoint(request: HttpRequest, project: str, payload: EndpointIn) -> Status[EndpointOut]:
    """Create an endpoint for a model version. Requests that can never run are refused."""
    user = require_principal(request).user
    made = endpoint_services.create_endpoint(project=gated_project(request), by=user, spec=payload)
    return Status(201, shown(made))


@router.get(_ONE, auth=gate(_SEE), response=EndpointOut)
def get_endpoint(request: HttpRequest, project: str, endpoint: str) -> EndpointOut:
    """Get an endpoint: state and reason, revisions, current rollout."""
    return endpoint_out(gated_endpoint(request))


@router.patch(_ONE, auth=gate(_CHANGE), response=EndpointOut)
def update_endpoint(
    request: HttpRequest, project: str, endpoint: str, payload: EndpointChange
) -> EndpointOut:
    """Change replicas, limits, rollback rules or capture of a serving endpoint."""
    user = require_principal(request).user
    return shown(change_endpoint(endpoint=gated_endpoint(request), by=user, change=payload))


@router.delete(_ONE, auth=gate(_CHANGE), response={202: EndpointOut})
def delete_endpoint(request: HttpRequest, project: str, endpoint: str) -> Status[EndpointOut]:
    """Delete an endpoint. Its replicas finish their requests, then its name is free."""
    user = require_principal(request).user
    return Status(
        202, shown(endpoint_services.delete_endpoint(endpoint=gated_endpoint(request), by=user))
    )


@router.post(f"{_ONE}/promote", auth=gate(_CHANGE), response={202: RolloutOut})
def promote_endpoint(
    request: HttpRequest, project: str, endpoint: str, payload: Promote
) -> Status[RolloutOut]:
    """Roll out another version. It is rolled back automatically if it performs badly."""
    user = require_principal(request).user
    made = promote(endpoint=gated_endpoint(request), by=user, spec=payload)
    return Status(202, rollout_out(made))


@router.post(f"{_ONE}/rollback", auth=gate(_CHANGE), response=EndpointOut)
def roll_back_endpoint(
    request: HttpRequest, project: str, endpoint: str, payload: Reason
) -> EndpointOut:
    """Roll back to the previous revision, immediately if it is still warm."""
    user = require_principal(request).user
    return shown(roll_back(endpoint=gated_endpoint(request), by=user, reason=payload.reason))


@router.post(f"{_ONE}/pause", auth=gate(_CHANGE), response=EndpointOut)
def pause_endpoint(
    request: HttpRequest, project: str, endpoint: str, payload: Reason
) -> EndpointOut:
    """Stop the replicas. Requests get 503 with the reason until the endpoint is resumed."""
    user = require_principal(request).user
    return shown(
        endpoint_services.pause_endpoint(
            endpoint=gated_endpoint(request), by=user, reason=payload.reason
        )
    )


@router.post(f"{_ONE}/resume", auth=gate(_CHANGE), response=EndpointOut)
def resume_endpoint(request: HttpRequest, project: str, endpoint: str) -> EndpointOut:
    """Resume a paused endpoint."""
    user = require_principal(request).user
    return shown(endpoint_services.resume_endpoint(endpoint=gated_endpoint(request), by=user))


@router.post(f"{_ONE}/try", auth=gate(_CHANGE), response=TryOut)
def invoke_endpoint(request: HttpRequest, project: str, endpoint: str, payload: TryIn) -> TryOut:
    """Send a prediction request through the gateway. `request` is a body of `/invocations`."""
    user = require_principal(request).user
    answered = try_out(endpoint=gated_endpoint(request), by=user, body=payload.request)
    return TryOut(status=answered.status, latency_ms=answered.latency_ms, answer=answered.body)


@router.get(f"{_ONE}/rollouts", auth=gate(_SEE), response=PageOf[RolloutOut])
def list_rollouts(
    request: HttpRequest, project: str, endpoint: str, query: PageParameters
) -> PageOf[RolloutOut]:
    """List the endpoint's rollouts, newest first."""
    rows = rollouts_of(gated_endpoint(request))
    return page_of(paginate(rows, cursor=query.cursor, limit=query.limit), rollout_out)


@router.get(f"{_ONE}/replicas", auth=gate(_SEE), response=list[ReplicaOut])
def list_replicas(
    request: HttpRequest,
    response: HttpResponse,
    project: str,
    endpoint: str,
    query: ListParameters,
) -> list[ReplicaOut]:
    """List active and recently ended replicas with their reasons, newest first.

    The header `X-Slipway-Next-Cursor` is present if there are more. Pass it as `cursor`.
    """
    page = replica_page(gated_endpoint(request), cursor=query.cursor, limit=query.limit)
    replicas = announce_rest(response, page).items
    nodes, explainer = nodes_of(replicas), Explainer(require_principal(request).user)
    unreachable = unreachable_reasons(replicas)
    return [replica_out(replica, nodes, explainer, unreachable) for replica in replicas]


@router.get(f"{_ONE}/events", auth=gate(_SEE), response=PageOf[EndpointEventOut])
def list_endpoint_events(
    request: HttpRequest, project: str, endpoint: str, query: PageParameters
) -> PageOf[EndpointEventOut]:
    """List the events of an endpoint with their reasons, newest first."""
    rows = EndpointEvent.objects.filter(endpoint=gated_endpoint(request))
    return page_of(paginate(rows, cursor=query.cursor, limit=query.limit), endpoint_event_out)


@router.get(f"{_ONE}/traffic", auth=gate(_SEE), response=list[TrafficPoint])
def get_endpoint_traffic(
    request: HttpRequest, project: str, endpoint: str, query: Query[TrafficQuery]
) -> list[TrafficPoint]:
    """Get requests per second, latency and errors per minute, oldest first."""
    minutes = traffic_of(endpoint=gated_endpoint(request), minutes=query.minutes)
    return [traffic_out(minute) for minute in minutes]
