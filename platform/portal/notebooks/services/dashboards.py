"""The dashboard of the cluster that runs beside a notebook server."""

from portal.accounts.models import User
from portal.accounts.principal import Principal
from portal.core.errors import Conflict, Forbidden, SlipwayError
from portal.notebooks.models import Server
from portal.workloads.models import Workload
from portal.workloads.services.dashboards import (
    OpenedDashboard,
    open_dashboard,
    require_dashboard,
)
from slipway.schemas.frameworks import FRAMEWORKS


def open_server_dashboard(
    *, server: Server, by: Principal, session_key: str = ""
) -> OpenedDashboard:
    """Let the owner open the dashboard. Raises Forbidden, and Conflict where there is none.

    The token of a workload speaks for a person, too, and code that somebody runs could use it.
    """
    if by.token is not None and Workload.objects.filter(pk=by.token.pk).exists():
        raise Forbidden(
            "The token of a workload opens no dashboards.",
            code="not_a_person",
            next_step="Use an API token of your own, or the page of the notebook server.",
        )
    if server.workload is None:
        raise Conflict(
            "The notebook server has not started yet.",
            code="not_running",
            next_step="Start it first.",
        )
    return open_dashboard(workload=server.workload, by=by, session_key=session_key)


def dashboard_label(server: Server, by: User) -> str:
    """Return the name of the dashboard that a person can open now, "" if there is none."""
    if server.workload is None or not server.framework or server.owner_id != by.pk:
        return ""
    try:
        require_dashboard(workload=server.workload, by=by)
    except SlipwayError:
        return ""
    return FRAMEWORKS[server.framework].dashboard
