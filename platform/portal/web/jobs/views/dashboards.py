"""The dashboard of the cluster of a running job, at a host name of its own."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from portal.accounts.gates import ProjectRole, gated_project
from portal.accounts.models import User
from portal.accounts.principal import require_principal
from portal.core.errors import SlipwayError
from portal.core.policy import guarded_by
from portal.web.base.form_submission import one_click
from portal.web.base.urls_for import address_of
from portal.web.jobs.presenters import job_of
from portal.workloads.models import Workload
from portal.workloads.services.dashboards import open_dashboard, require_dashboard
from portal.workloads.specs import RunSpec
from slipway.schemas.accounts import Role, Scope
from slipway.schemas.frameworks import FRAMEWORKS

_RUN = ProjectRole(Role.CONTRIBUTOR, Scope.WORKLOADS_WRITE)


@guarded_by(_RUN)
@require_POST
def project_job_dashboard(request: HttpRequest, project: str, job: str) -> HttpResponse:
    """Open the dashboard, and lead the browser there."""
    project_row = gated_project(request)
    job_row = job_of(project_row, job)
    opened = one_click(
        request,
        lambda: open_dashboard(
            workload=job_row.workload,
            by=require_principal(request),
            session_key=request.session.session_key or "",
        ),
    )
    return redirect(opened.result.url if opened else address_of(project_row, "job", job))


def dashboard_label(workload: Workload, by: User) -> str:
    """Return the name of the dashboard that a person can open now, "" if there is none."""
    try:
        require_dashboard(workload=workload, by=by)
    except SlipwayError:
        return ""
    framework = RunSpec.model_validate(workload.spec).framework
    return FRAMEWORKS[framework].dashboard if framework else ""
