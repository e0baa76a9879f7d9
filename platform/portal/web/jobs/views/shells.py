"""A shell in the task of a job, in a terminal on the page."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from portal.accounts.gates import ProjectRole, gated_project
from portal.accounts.models import User
from portal.accounts.principal import require_principal
from portal.core.errors import SlipwayError
from portal.core.policy import guarded_by
from portal.web.base.list_query import search_parameter
from portal.web.jobs.presenters import job_of, job_status
from portal.workloads.kept_tasks import failed_rank
from portal.workloads.models import Workload
from portal.workloads.services.shells import require_shell
from slipway.schemas.accounts import Role, Scope

_RUN = ProjectRole(Role.CONTRIBUTOR, Scope.WORKLOADS_WRITE)
_WHERE = {"area": "projects", "section": "jobs"}
_MOST_DIGITS = 5


@guarded_by(_RUN)
@require_safe
def project_job_shell(request: HttpRequest, project: str, job: str) -> HttpResponse:
    """Show a terminal whose scripts open a shell beside a rank, or why none can be opened."""
    project_row, by = gated_project(request), require_principal(request).user
    status = job_status(job_of(project_row, job), by)
    rank = _rank_of(request, default=failed_rank(status.workload))
    refusal = refusal_of_shell(status.workload, by, rank=rank)
    context = {
        "job": status.job,
        "it": status,
        "workload": status.workload,
        "rank": rank,
        "last_rank": status.workload.nodes * status.workload.procs - 1,
        "refusal": refusal,
        "refusal_words": refusal and f"{refusal.message} {refusal.next_step or ''}",
        "shells_url": f"/api/v1/projects/{project_row.slug}/jobs/{job}/shells",
        "command": f"slipway job shell {job} --project {project_row.slug}",
    }
    return render(request, "web/jobs/shell.html", context | _WHERE)


def refusal_of_shell(
    workload: Workload, by: User, *, rank: int | None = None
) -> SlipwayError | None:
    """Return why a person cannot open a shell beside a rank now, or None.

    Without a rank it is the one that has failed in a job that is kept, and else rank 0.
    """
    if rank is None:
        rank = failed_rank(workload)
    try:
        require_shell(workload=workload, rank=rank, by=by)
    except SlipwayError as error:
        return error
    return None


def _rank_of(request: HttpRequest, *, default: int) -> int:
    text = search_parameter(request, "rank")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else default
