"""Operations on notebook servers."""

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router, Status
from pydantic import Field

from portal.accounts.gates import ProjectRole, gated_project
from portal.accounts.models import User
from portal.accounts.principal import require_principal
from portal.api.notebooks.server_serializers import server_out
from portal.api.routing import gate
from portal.api.v1.serializers import PageQuery, page_of
from portal.api.v1.workload_serializers import event_out
from portal.core.pagination import Page, paginate
from portal.notebooks.gates import ServerOwner, ServerRole, gated_server
from portal.notebooks.models import Server
from portal.notebooks.services.access_tokens import issue_server_key
from portal.notebooks.services.dashboards import open_server_dashboard
from portal.notebooks.services.quotes import admission_request, quote_server
from portal.notebooks.services.server_edits import edit_server
from portal.notebooks.services.servers import (
    delete_server,
    launch_server,
    start_server,
    stop_server,
)
from portal.spend.presenters import with_cost
from portal.workloads.explanations import Explainer
from portal.workloads.models import WorkloadEvent
from slipway.schemas.accounts import Role, Scope
from slipway.schemas.base import PageOf
from slipway.schemas.dashboards import DashboardOut
from slipway.schemas.notebook_servers import (
    NotebookState,
    ServerEdit,
    ServerIn,
    ServerKeyOut,
    ServerOut,
)
from slipway.schemas.training import Quote
from slipway.schemas.workloads import WorkloadEventOut

router = Router(tags=["Notebooks"])
_SEE = ProjectRole(Role.VIEWER, Scope.WORKLOADS_READ)
_RUN = ProjectRole(Role.CONTRIBUTOR, Scope.WORKLOADS_WRITE)
_SEE_ONE = ServerRole(Role.VIEWER, Scope.WORKLOADS_READ)
_OWN = ServerOwner(Scope.WORKLOADS_WRITE)
_STOP = ServerOwner(Scope.WORKLOADS_WRITE, or_role=Role.MAINTAINER)
_ALL = "/projects/{project}/notebooks/servers"
_ONE = "/projects/{project}/notebooks/servers/{server}"


class ServersQuery(PageQuery):
    """Filters, all of which must match. `mine` omits servers of others."""

    state: NotebookState | None = None
    mine: bool = Field(default=False)


def shown(server: Server, viewer: User) -> ServerOut:
    """Serialize a server after a change."""
    fresh = Server.objects.of_project(server.project).get(pk=server.pk)
    return server_out(fresh, viewer, Explainer(viewer))


@router.get(_ALL, auth=gate(_SEE), response=PageOf[ServerOut])
def list_notebook_servers(
    request: HttpRequest, project: str, query: Query[ServersQuery]
) -> PageOf[ServerOut]:
    """List the notebook servers of a project, newest first."""
    viewer = require_principal(request).user
    servers = Server.objects.of_project(gated_project(request))
    if query.mine:
        servers = servers.filter(owner=viewer)
    if query.state is not None:
        servers = servers.filter(state=query.state)
    page: Page[Server] = paginate(servers, cursor=query.cursor, limit=query.limit)
    explainer = Explainer(viewer)
    return page_of(page, lambda server: server_out(server, viewer, explainer))


@router.post(_ALL, auth=gate(_RUN), response={201: ServerOut})
def create_notebook_server(
    request: HttpRequest, project: str, payload: ServerIn
) -> Status[ServerOut]:
    """Launch a notebook server. Requests that can never run are refused immediately."""
    user = require_principal(request).user
    server = launch_server(project=gated_project(request), by=user, spec=payload)
    return Status(201, shown(server, user))


@router.post(f"{_ALL}/quote", auth=gate(_RUN), response=Quote)
def quote_notebook_server(request: HttpRequest, project: str, payload: ServerIn) -> Quote:
    """Get the price of a notebook server, and whether it could start now. Nothing starts."""
    project_row, by = gated_project(request), require_principal(request).user
    quote = quote_server(project=project_row, spec=payload)
    return with_cost(quote, admission_request(project=project_row, by=by, spec=payload))


@router.get(_ONE, auth=gate(_SEE_ONE), response=ServerOut)
def get_notebook_server(request: HttpRequest, project: str, server: str) -> ServerOut:
    """Get a notebook server."""
    viewer = require_principal(request).user
    return server_out(gated_server(request), viewer, Explainer(viewer))


@router.patch(_ONE, auth=gate(_OWN), response=ServerOut)
def update_notebook_server(
    request: HttpRequest, project: str, server: str, payload: ServerEdit
) -> ServerOut:
    """Change your server. Its tier and time limit change only while it is stopped."""
    user = require_principal(request).user
    return shown(edit_server(server=gated_server(request), spec=payload), user)


@router.post(f"{_ONE}/start", auth=gate(_OWN), response=ServerOut)
def start_notebook_server(request: HttpRequest, project: str, server: str) -> ServerOut:
    """Start your server again, with the same files. A running server is left alone."""
    user = require_principal(request).user
    return shown(start_server(server=gated_server(request), by=user), user)


@router.post(f"{_ONE}/stop", auth=gate(_STOP), response=ServerOut)
def stop_notebook_server(request: HttpRequest, project: str, server: str) -> ServerOut:
    """Stop your server, or as a maintainer any server. Its files remain."""
    user = require_principal(request).user
    return shown(stop_server(server=gated_server(request), by=user), user)


@router.post(f"{_ONE}/key", auth=gate(_OWN), response=ServerKeyOut)
def create_notebook_server_key(
    request: HttpRequest, response: HttpResponse, project: str, server: str
) -> ServerKeyOut:
    """Create access for your programs: the address of Jupyter's API, and a token."""
    key = issue_server_key(server=gated_server(request))
    response.headers["Cache-Control"] = "no-store"
    return ServerKeyOut(url=key.url, token=key.token)


@router.delete(_ONE, auth=gate(_STOP), response={204: None})
def delete_notebook_server(request: HttpRequest, project: str, server: str) -> Status[None]:
    """Delete a stopped server. Its files remain in the project's workspace."""
    delete_server(server=gated_server(request))
    return Status(204, None)


@router.get(f"{_ONE}/events", auth=gate(_SEE_ONE), response=PageOf[WorkloadEventOut])
def list_notebook_server_events(
    request: HttpRequest, project: str, server: str, query: Query[PageQuery]
) -> PageOf[WorkloadEventOut]:
    """List the events of the latest start of a server, newest first."""
    events = WorkloadEvent.objects.filter(workload=gated_server(request).workload_id)
    page: Page[WorkloadEvent] = paginate(events, cursor=query.cursor, limit=query.limit)
    return page_of(page, event_out)


@router.post(f"{_ONE}/dashboards", auth=gate(_OWN), response={201: DashboardOut})
def create_notebook_server_dashboard(
    request: HttpRequest, project: str, server: str
) -> Status[DashboardOut]:
    """Open the dashboard of the cluster beside a server, with an address for one browser."""
    opened = open_server_dashboard(
        server=gated_server(request),
        by=require_principal(request),
        session_key=request.session.session_key or "",
    )
    answer = DashboardOut(
        id=opened.session.pk,
        workload=opened.session.lease.workload_id,
        attempt=opened.session.lease.epoch,
        dashboard_url=opened.url,
        expires_at=opened.session.ticket_until,
    )
    return Status(201, answer)
