"""Parts of the project overview that the page loads after it is shown."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from portal.accounts.gates import ProjectRole, gated_project, gated_role
from portal.core import clock
from portal.core.policy import guarded_by
from portal.spend.forecasts import forecast_of
from portal.spend.models import Budget
from portal.spend.queries import Scope as Spent
from portal.spend.queries import compute_live_cost, spent_in
from portal.spend.windows import MONTH, window_of
from portal.web.base.shortlist import shortlist
from portal.web.projects.presenters import latest_experiments, latest_models
from slipway.schemas.accounts import Role, Scope

_BUDGETS_SHOWN = 3


@guarded_by(ProjectRole(Role.VIEWER, Scope.EXPERIMENTS_READ, archived=True))
@require_safe
def project_overview_results(request: HttpRequest, project: str) -> HttpResponse:
    """Show the latest experiments and models."""
    project_row = gated_project(request)
    context = {
        "project": project_row,
        "experiments": latest_experiments(project_row),
        "models": latest_models(project_row),
        "may_write": gated_role(request).at_least(Role.CONTRIBUTOR) and not project_row.archived_at,
    }
    return render(request, "web/projects/overview_results.html", context)


@guarded_by(ProjectRole(Role.VIEWER, Scope.WORKLOADS_READ, archived=True))
@require_safe
def project_overview_spend(request: HttpRequest, project: str) -> HttpResponse:
    """Show the spend of this month against the budgets that count it."""
    project_row, timestamp = gated_project(request), clock.now()
    scope, window = Spent((project_row.pk,)), window_of(MONTH, timestamp)
    spent = spent_in(scope, month=window.name, timestamp=timestamp)
    budgets = Budget.objects.over(project=project_row.pk, team=project_row.team_id or "", person="")
    budgets = budgets.filter(person=None).select_related("project", "team", "person")
    context = {
        "spent": spent,
        "rate": compute_live_cost(scope, timestamp).nano_usd_per_hour,
        "forecast": forecast_of(scope, timestamp, spent_nano_usd=spent),
        "budgets": shortlist(budgets.order_by("-spent_nano_usd"), _BUDGETS_SHOWN),
        "label": window.label,
    }
    return render(request, "web/spend/month.html", context)
