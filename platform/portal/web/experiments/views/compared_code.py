"""Code and environment of two compared runs."""

from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from portal.accounts.gates import ProjectRole, gated_project
from portal.core.policy import guarded_by
from portal.experiments.factories import tracker
from portal.web.experiments.presenters.code_comparison import compare_code
from portal.web.experiments.views.selection import compared_ids
from slipway.schemas.accounts import Role, Scope

_WHERE = {"area": "projects", "section": "experiments"}


@guarded_by(ProjectRole(Role.VIEWER, Scope.EXPERIMENTS_READ))
@require_safe
def project_compare_code(request: HttpRequest, project: str) -> HttpResponse:
    """Show code and environment of two of the runs. The page Compare loads this section."""
    project_row = gated_project(request)
    runs = tracker().runs(project_row.pk, compared_ids(request))
    base = next((run for run in runs if run.id == request.GET.get("base")), None)
    base = base or (runs[0] if runs else None)
    others = [run for run in runs if run is not base]
    other = next((run for run in others if run.id == request.GET.get("with")), None)
    other = other or (others[0] if others else None)
    context: dict[str, Any] = {
        "runs": runs,
        "query": urlencode([("run", run.id) for run in runs]),
        "compared": None,
    }
    if base is not None and other is not None:
        details = [tracker().run(project_row.pk, run.id) for run in (base, other)]
        if details[0] is not None and details[1] is not None:
            compared = compare_code(project_row, details[0], details[1])
            context["compared"] = compared
            context["sides"] = list(zip(compared.packages, details, strict=True))
    return render(request, "web/experiments/compared_code.html", context | _WHERE)
