"""Operations of the Hub (servers, routes) and of notebook servers (reports)."""

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router, Status
from pydantic import BaseModel, Field

from portal.api.agent.requires import agent_gate
from portal.compute.tokens import bearer_of
from portal.notebooks.gates import HubToken, LabToken, gated_server
from portal.notebooks.models import HubVersion, Server
from portal.notebooks.services.hubs import (
    accept_lab_report,
    note_routed,
    note_trouble,
    record_hub_request,
)
from portal.notebooks.services.queries import hub_view
from portal.notebooks.services.servers import start_server
from slipway.schemas.notebook_servers import (
    HubNote,
    HubServer,
    HubServers,
    LabInstructions,
    LabReport,
    RouteProblem,
)

router = Router(tags=["Notebooks"])
_OF_ONE = agent_gate(HubToken(parameter="server"))


class HubServersQuery(BaseModel):
    """The response waits up to `wait_s` for a version newer than `If-None-Match`."""

    wait_s: float = Field(default=0, ge=0, le=60)


@router.get("/servers", auth=agent_gate(HubToken()), response={200: HubServers, 304: None})
def list_servers(
    request: HttpRequest, response: HttpResponse, query: Query[HubServersQuery]
) -> Status[HubServers | None]:
    """List every running server, after the long poll (`portal.api.agent.long_poll`)."""
    record_hub_request(secret=bearer_of(request.headers.get("Authorization", "")))
    version = HubVersion.objects.current()
    response.headers["ETag"] = f'"{version}"'
    if request.headers.get("If-None-Match") == f'"{version}"':
        return Status(304, None)
    alive = Server.objects.alive().with_related().order_by("pk")
    return Status(200, HubServers(version=version, servers=[hub_view(server) for server in alive]))


@router.get("/servers/{server}", auth=_OF_ONE, response=HubServer)
def get_server(request: HttpRequest, server: str) -> HubServer:
    """Return the state of one server."""
    return hub_view(gated_server(request))


@router.post("/servers/{server}/start", auth=_OF_ONE, response=HubServer)
def start_hub_server(request: HttpRequest, server: str) -> HubServer:
    """Start a stopped server for its owner. A running server is left alone."""
    return _shown(start_server(server=gated_server(request)))


@router.post("/servers/{server}/routed", auth=_OF_ONE, response=HubServer)
def report_route(request: HttpRequest, server: str, payload: HubNote) -> HubServer:
    """Record that browsers reach one start of a server."""
    note_routed(server=gated_server(request), start=payload.start)
    return _shown(gated_server(request))


@router.post("/servers/{server}/trouble", auth=_OF_ONE, response=HubServer)
def report_failure(request: HttpRequest, server: str, payload: RouteProblem) -> HubServer:
    """Record why browsers do not reach one start of a server yet."""
    note_trouble(server=gated_server(request), start=payload.start, why=payload.why)
    return _shown(gated_server(request))


@router.post("/labs/{server}/reports", auth=agent_gate(LabToken()), response=LabInstructions)
def report_lab(request: HttpRequest, server: str, payload: LabReport) -> LabInstructions:
    """Accept the report of a server, and return its instructions."""
    return accept_lab_report(server=gated_server(request), report=payload)


def _shown(server: Server) -> HubServer:
    return hub_view(Server.objects.with_related().get(pk=server.pk))
