"""The page of a workload of any kind: its own one, or what is common to all kinds."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_safe

from portal.accounts.gates import gated_project, gated_role
from portal.accounts.principal import require_principal
from portal.core.policy import guarded_by
from portal.web.base.confirmation import Confirmation, show_confirmation
from portal.web.base.form_submission import one_click
from portal.web.base.urls_for import url_of_workload
from portal.web.workloads.logs import tail_of
from portal.web.workloads.presenters import WorkloadStatus, workload_page
from portal.workloads.explanations import Explainer
from portal.workloads.gates import WorkloadRole, gated_workload
from portal.workloads.models import Workload
from portal.workloads.ports import kind_of
from portal.workloads.services.cancellation import stop_workload
from slipway.schemas.accounts import Role, Scope

_SEE = WorkloadRole(Role.VIEWER, Scope.WORKLOADS_READ)
_STOP = WorkloadRole(Role.CONTRIBUTOR, Scope.WORKLOADS_WRITE)
_WHERE = {"area": "projects"}


def _own_page(workload: Workload) -> str:
    """Return the URL of the page that the kind has for a workload, empty without one."""
    page = kind_of(workload.kind).presentation.page_of(workload.pk)
    return "" if page is None else reverse(page.name, args=[workload.project.slug, *page.args])


@guarded_by(_SEE)
@require_safe
def project_workload(request: HttpRequest, project: str, workload: str) -> HttpResponse:
    """Redirect to the page of the kind, or show state, log, usage, events and cost."""
    workload_row = gated_workload(request)
    if url := _own_page(workload_row):
        return redirect(url)
    viewer = require_principal(request).user
    why = Explainer(viewer).explain(workload_row)
    context = workload_page(WorkloadStatus.of(workload_row, why), viewer) | {
        "kind": kind_of(workload_row.kind),
        "may_run": gated_role(request).at_least(Role.CONTRIBUTOR),
    }
    if request.headers.get("HX-Request") != "true":  # a refreshed state brings no log with it
        context |= tail_of(workload_row, request)
    return render(request, "web/workloads/workload.html", context | _WHERE)


@guarded_by(_STOP)
@require_http_methods(["GET", "HEAD", "POST"])
def project_workload_stop(request: HttpRequest, project: str, workload: str) -> HttpResponse:
    """Ask, then stop a workload. Kinds with a page of their own are stopped there."""
    workload_row, by = gated_workload(request), require_principal(request).user
    if url := _own_page(workload_row):
        return redirect(url)
    back = url_of_workload(gated_project(request).slug, workload_row.pk)
    if request.method == "POST":
        if one_click(request, lambda: stop_workload(workload=workload_row, by=by)):
            messages.success(request, f"{workload_row.name} is being stopped.")
        return redirect(back)
    noun = kind_of(workload_row.kind).noun
    return show_confirmation(
        request,
        Confirmation(
            title=f"Stop {workload_row.name}?",
            effects=("Its tasks are asked to end. Log, events and cost stay.",),
            button=f"Stop the {noun}",
            back=back,
            area="projects",
        ),
    )
