"""Operations on the dashboards of clusters of running jobs."""

from django.http import HttpRequest
from ninja import Router, Status

from portal.accounts.principal import require_principal
from portal.api.routing import gate
from portal.training.gates import DashboardOpener, gated_job
from portal.workloads.services.dashboards import open_dashboard
from slipway.schemas.dashboards import DashboardOut

router = Router(tags=["Jobs"])


@router.post(
    "/projects/{project}/jobs/{job}/dashboards",
    auth=gate(DashboardOpener()),
    response={201: DashboardOut},
)
def create_job_dashboard(request: HttpRequest, project: str, job: str) -> Status[DashboardOut]:
    """Open the dashboard of the cluster of a running job, with an address for one browser."""
    job_row = gated_job(request)
    opened = open_dashboard(
        workload=job_row.workload,
        by=require_principal(request),
        session_key=request.session.session_key or "",
    )
    answer = DashboardOut(
        id=opened.session.pk,
        workload=job_row.workload_id,
        attempt=opened.session.lease.epoch,
        dashboard_url=opened.url,
        expires_at=opened.session.ticket_until,
    )
    return Status(201, answer)
