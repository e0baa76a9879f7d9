"""Runs of pipelines of a project: the list, and the page of one."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from portal.accounts.gates import ProjectRole, gated_project, gated_role
from portal.accounts.principal import require_principal
from portal.core.policy import guarded_by
from portal.experiments.models import Run
from portal.experiments.services.job_runs import run_id_of
from portal.pipelines.comparisons import PipelineComparison, compared_with, other_runs
from portal.pipelines.gates import PipelineRunRole, gated_pipeline_run
from portal.pipelines.models import PipelineRun
from portal.pipelines.pipeline_summaries import summaries_of
from portal.pipelines.summaries import run_of_pipeline
from portal.web.base.list_query import Select, listing, search_parameter
from portal.web.jobs.presenters import job_of
from portal.web.pipelines.forms import DecisionForm
from portal.web.pipelines.lineage import registered_versions
from portal.web.pipelines.presenters import (
    PipelineRunRow,
    StepView,
    edges_of,
    progress_text,
    steps_of,
)
from portal.web.workloads.logs import tail_of
from slipway.schemas.accounts import Role, Scope
from slipway.schemas.pipeline_references import as_text
from slipway.schemas.pipelines import PipelineRunState, StepState

WHERE = {"area": "projects", "section": "pipelines"}
_ROWS = 20
_STATES = [(state.value, state.value.capitalize()) for state in PipelineRunState]


@guarded_by(ProjectRole(Role.VIEWER, Scope.WORKLOADS_READ))
@require_safe
def project_pipelines(request: HttpRequest, project: str) -> HttpResponse:
    """List the runs of pipelines, newest first."""
    runs = PipelineRun.objects.of_project(gated_project(request))
    runs = runs.filter(name__icontains=search_parameter(request, "q"))
    if request.GET.get("state") in dict(_STATES):
        runs = runs.filter(state=request.GET["state"])
    if request.GET.get("who") == "me":
        runs = runs.filter(owner=require_principal(request).user)
    selects = (
        Select("state", "State", _STATES),
        Select("who", "Paid by", [("me", "Me")], default="Everybody"),
    )
    runs = runs.defer("spec", "parameters", "git")
    shown = listing(request, runs, selects=selects, limit=_ROWS)
    summaries = summaries_of(shown.page.items)
    rows = [PipelineRunRow.of(run, summaries[run.pk]) for run in shown.page.items]
    context = {
        "listing": shown,
        "region": "pipelines",
        "rows": rows,
        "any_active": any(row.status.is_active for row in rows),
        "may_run": gated_role(request).at_least(Role.CONTRIBUTOR),
    }
    return render(request, "web/pipelines/list.html", context | WHERE)


@guarded_by(PipelineRunRole(Role.VIEWER, Scope.WORKLOADS_READ))
@require_safe
def project_pipeline_run(request: HttpRequest, project: str, pipeline_run: str) -> HttpResponse:
    """Show a run: state and reason, its steps as a graph and as a table, code and differences."""
    return render_run(request)


def render_run(
    request: HttpRequest, refused: dict[str, DecisionForm] | None = None, status: int = 200
) -> HttpResponse:
    """Render the page of a run. `refused` are forms with errors, by the names of their steps."""
    run, role = gated_pipeline_run(request), gated_role(request)
    steps = steps_of(run, require_principal(request).user)
    row = PipelineRunRow.of(run, summaries_of([run])[run.pk])
    may_run = role.at_least(Role.CONTRIBUTOR)
    decisions = [
        (view, _decision_form(view, role, refused or {}))
        for view in steps
        if view.waits_for_approval and row.status.is_active
    ]
    has_open_steps = not all(view.row.status.has_ended for view in steps)
    context: dict[str, Any] = {
        "pipeline_run": run,
        "row": row,
        "it": row.status,
        "explanation": progress_text(run, steps),
        "steps": steps,
        "versions": registered_versions(run.project, steps),
        "decisions": decisions,
        "may_run": may_run,
        "can_cancel": run.status == PipelineRunState.RUNNING,
        "can_resume": run.status in (PipelineRunState.FAILED, PipelineRunState.CANCELLED),
        "is_active": row.status.is_active or has_open_steps,
    }
    if request.headers.get("HX-Request") != "true":  # these parts do not change
        other = request.GET.get("with", "")
        comparison = compared_with(run, [view.row for view in steps], other)
        context |= _log_of(request, run, steps)
        context |= {
            "scheduled_run": run_of_pipeline(run.pk),
            "edges": edges_of(steps),
            "description": run.pipeline.description,
            "parameters": [(name, as_text(value)) for name, value in run.parameters.items()],
            "comparison": comparison,
            "other_runs": other_runs(run),
            "code_url": comparison and _code_url(run, comparison),
        }
    return render(request, "web/pipelines/run.html", context | WHERE, status=status)


def _decision_form(
    view: StepView, role: Role, refused: dict[str, DecisionForm]
) -> DecisionForm | None:
    """Return the form to decide about a step, or None for a person with a lower role."""
    if not role.at_least(Role(view.approvers)):
        return None
    return refused.get(view.name) or DecisionForm.of_step(view.name)


def _log_of(request: HttpRequest, run: PipelineRun, steps: Sequence[StepView]) -> dict[str, Any]:
    """Return the log to show: of the job in `?log=`, else of a step that runs or has failed."""
    views = [it for view in steps for it in (view, *view.items)]
    rows = [view.row for view in views if view.row.job_id is not None]
    requested = request.GET.get("log", "")
    chosen = next((row for row in rows if row.job_id == requested), None)
    for state in (StepState.RUNNING, StepState.FAILED):
        chosen = chosen or next((row for row in rows if row.status == state), None)
    if chosen is None:
        return {}
    workload = job_of(run.project, str(chosen.job_id)).workload
    return {
        "workload": workload,
        "log_step": str(chosen),
        "attempts": sorted({lease.epoch for lease in workload.leases.all()}, reverse=True),
        "ranks": range(workload.nodes * workload.procs),
    } | tail_of(workload, request)


def _code_url(run: PipelineRun, comparison: PipelineComparison) -> str:
    """Return the comparison of code and environment of a step in both runs, "" without one."""
    if comparison.jobs is None:
        return ""
    ids = [run_id_of(job) for job in comparison.jobs]
    if Run.objects.filter(run_uuid__in=ids).count() < len(set(ids)) or len(set(ids)) == 1:
        return ""
    query = urlencode([("run", run_id) for run_id in ids])
    return f"{reverse('project_compare_code', args=[run.project.slug])}?{query}"
