"""One run, and several side by side."""

from typing import Any
from urllib.parse import urlencode

from csp.decorators import csp_update
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_safe

from portal.accounts.gates import ProjectRole, gated_project, gated_role
from portal.core.policy import guarded_by
from portal.experiments.factories import is_mlflow_reachable
from portal.experiments.gates import TrackedRunRole, gated_run
from portal.experiments.ports import RunDetail, Stage
from portal.experiments.services.job_runs import JOB_TAG
from portal.experiments.services.queries import compare
from portal.experiments.services.run_changes import NOTE
from portal.registry.logged_models import MOST_MODELS, logged_models_of
from portal.training.models import Job
from portal.web.experiments.presenters.curves import curves_of
from portal.web.experiments.presenters.files import artifacts_context
from portal.web.experiments.presenters.runs import (
    datetime_from_ms,
    number,
    row_of,
    signature_text,
)
from portal.web.experiments.presenters.value_table import value_table
from portal.web.experiments.views.selection import RUN_ID_CHARACTERS
from slipway.schemas.accounts import Role, Scope
from slipway.schemas.experiments import MOST_COMPARED, SYSTEM_TAGS

_CHARTS_COMPARED = 4
_SEE = ProjectRole(Role.VIEWER, Scope.EXPERIMENTS_READ)
_WHERE = {"area": "projects", "section": "experiments"}


@guarded_by(TrackedRunRole(Role.VIEWER, Scope.EXPERIMENTS_READ))
@csp_update({"frame-src": ["'self'"]})  # type: ignore[arg-type]  # (a caged artifact)
@require_safe
def project_run(request: HttpRequest, project: str, run: str) -> HttpResponse:
    """Show one run: its curves, what was logged, its artifacts, where it came from."""
    project_row, shown = gated_project(request), gated_run(request)
    may_change = gated_role(request).at_least(Role.CONTRIBUTOR)
    context: dict[str, Any] = {
        "mlflow_is_away": not is_mlflow_reachable(),
        "run": shown,
        "it": row_of(shown.facts, ()),
        "ended": datetime_from_ms(shown.facts.ended_ms),
        "note": shown.facts.tags.get(NOTE, ""),
        "tags": {k: v for k, v in shown.facts.tags.items() if not k.startswith(SYSTEM_TAGS)},
        "system_tags": {
            k: v for k, v in shown.facts.tags.items() if k.startswith(SYSTEM_TAGS) and k != NOTE
        },
        "client_user": _client_user(shown),
        "latest": [(it, number(it.value)) for it in shown.metrics],
        "curves": curves_of(
            project,
            [shown.facts],
            [it.key for it in shown.metrics],
            live=shown.facts.status == "RUNNING",
        ),
        "job": _job_of(shown, project_row.pk),
        "logged_models": [
            (model, signature_text(model.signature))
            for model in logged_models_of(project_row.pk, run)
        ],
        "most_models": MOST_MODELS,
        "may_change": may_change,
        "may_edit": may_change and shown.facts.stage is Stage.ACTIVE,
    }
    if request.headers.get("HX-Request") != "true" or "path" in request.GET:
        context |= artifacts_context(request, project_row, shown)
    return render(request, "web/experiments/run.html", context | _WHERE)


def _client_user(run: RunDetail) -> str:
    """Return the user that the client named, if it is not the author: anybody can set it."""
    user = run.facts.tags.get("mlflow.user", "")
    return "" if user == run.facts.user else user


def _job_of(run: RunDetail, project_id: str) -> Job | None:
    """Return the job a run says it came from, when that is one of the project."""
    job_id = run.facts.tags.get(JOB_TAG, "")
    jobs = Job.objects.filter(pk=job_id, workload__project=project_id)
    return jobs.select_related("workload").first() if job_id else None


@guarded_by(_SEE)
@require_http_methods(["GET", "HEAD", "POST"])
def project_compare(request: HttpRequest, project: str) -> HttpResponse:
    """Show runs side by side: charts, what differs, relations between values.

    The list of runs posts the selected ones, so that its token stays out of the address that the
    answer leads to.
    """
    if request.method == "POST":
        selected = urlencode([("run", run_id) for run_id in request.POST.getlist("run")])
        return redirect(f"{reverse('project_compare', args=[project])}?{selected}")
    chosen = list(dict.fromkeys(request.GET.getlist("run")))
    requested = chosen[:MOST_COMPARED]
    run_ids = [run_id for run_id in requested if len(run_id) == RUN_ID_CHARACTERS]
    run_comparison = compare(project_id=gated_project(request).pk, run_ids=run_ids)
    table = value_table(request, run_comparison.runs)
    if request.headers.get("HX-Request") == "true":
        return render(request, "web/experiments/value_table.html", {"table": table} | _WHERE)
    context = {
        "comparison": run_comparison,
        "curves": curves_of(
            project,
            run_comparison.runs,
            list(run_comparison.metrics),
            charts=_CHARTS_COMPARED,
            groups=run_comparison.differing,
        ),
        "table": table,
        "has_values": bool(run_comparison.differing or run_comparison.metrics),
        "hidden_runs": len(chosen) - len(requested),
        "missing_runs": len(requested) - len(run_comparison.runs),
        "most_runs": MOST_COMPARED,
        "cli_line": (
            f"slipway run compare {' '.join(run.id for run in run_comparison.runs)} --project {{}}"
        ),
    }
    return render(request, "web/experiments/compare.html", context | _WHERE)
