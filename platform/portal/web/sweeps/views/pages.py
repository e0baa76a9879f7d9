"""Sweeps of a project: the list, and the page of one."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from portal.accounts.gates import ProjectRole, gated_project, gated_role
from portal.core.policy import guarded_by
from portal.experiments.services.job_runs import run_id_of
from portal.pipelines.pipeline_summaries import step_of_sweep
from portal.pipelines.summaries import run_of_sweep
from portal.sweeps.gates import SweepRole, gated_sweep
from portal.sweeps.models import Sweep, Trial
from portal.sweeps.services.kept_trials import kept_trial_of
from portal.sweeps.services.repeats import repeats_of
from portal.sweeps.summaries import summaries_of
from portal.web.base.list_query import Select, listing, search_parameter
from portal.web.sweeps.forms import ExtensionForm
from portal.web.sweeps.presenters import (
    MOST_IN_SLICES,
    ShownFront,
    ShownRepeats,
    Slices,
    SweepRow,
    compared_runs,
    curve_of,
    shown_values,
    trial_rows,
)
from portal.web.sweeps.studies import StudyRow
from portal.workloads.kept_tasks import kept_until_text
from slipway.schemas.accounts import Role, Scope
from slipway.schemas.experiments import MOST_COMPARED
from slipway.schemas.sweeps import SweepState, TrialState

WHERE = {"area": "projects", "section": "sweeps"}
_ROWS = 20
_STATES = [(state.value, state.value.capitalize()) for state in SweepState]
_TRIAL_STATES = [(state.value, state.value.capitalize()) for state in TrialState]


@guarded_by(ProjectRole(Role.VIEWER, Scope.WORKLOADS_READ))
@require_safe
def project_sweeps(request: HttpRequest, project: str) -> HttpResponse:
    """List the sweeps, newest first."""
    sweeps = Sweep.objects.of_project(gated_project(request))
    sweeps = sweeps.filter(name__icontains=search_parameter(request, "q"))
    if request.GET.get("state") in dict(_STATES):
        sweeps = sweeps.filter(state=request.GET["state"])
    selects = (Select("state", "State", _STATES),)
    shown = listing(request, sweeps, selects=selects, limit=_ROWS)
    summaries = summaries_of(shown.page.items)
    rows = [SweepRow.of(sweep, summaries[sweep.pk]) for sweep in shown.page.items]
    context = {
        "listing": shown,
        "region": "sweeps",
        "rows": rows,
        "any_active": any(row.status.is_active for row in rows),
        "may_run": gated_role(request).at_least(Role.CONTRIBUTOR),
        "studies": StudyRow.newest_of(gated_project(request), search_parameter(request, "q")),
    }
    return render(request, "web/sweeps/list.html", context | WHERE)


@guarded_by(SweepRole(Role.VIEWER, Scope.WORKLOADS_READ))
@require_safe
def project_sweep(request: HttpRequest, project: str, sweep: str) -> HttpResponse:
    """Show a sweep: state and reason, best value so far, its trials, and what parameters matter."""
    return render_sweep(request)


def render_sweep(
    request: HttpRequest, extension: ExtensionForm | None = None, status: int = 200
) -> HttpResponse:
    """Render the page of a sweep, with a form to extend it that may have errors."""
    sweep = gated_sweep(request)
    trials = Trial.objects.filter(sweep=sweep)
    if request.GET.get("state") in dict(_TRIAL_STATES):
        trials = trials.filter(state=request.GET["state"])
    selects = (Select("state", "State", _TRIAL_STATES),)
    shown = listing(request, trials, filters=(), selects=selects)
    summary = summaries_of([sweep])[sweep.pk]
    row = SweepRow.of(sweep, summary)
    repeats = [ShownRepeats.of(group) for group in repeats_of(sweep)]
    context: dict[str, Any] = {
        "sweep": sweep,
        "row": row,
        "it": row.status,
        "best_values": shown_values(summary.best) if summary.best else [],
        "best_run": run_id_of(summary.best.job_id) if summary.best else "",
        "curve": "" if sweep.other_metrics else curve_of(sweep),
        "front": ShownFront.of(sweep) if sweep.other_metrics else None,
        "regions": "sweep-state,sweep-actions,sweep-repeats"
        + (",sweep-front" if sweep.other_metrics else ""),
        "listing": shown,
        "region": "trials",
        "rows": trial_rows(shown.page.items, metrics=len(sweep.objectives)),
        "may_run": gated_role(request).at_least(Role.CONTRIBUTOR),
        "can_stop": sweep.status in (SweepState.RUNNING, SweepState.PAUSED),
        "can_extend": sweep.status not in (SweepState.STOPPED, SweepState.FAILED),
        "extension": extension or ExtensionForm(initial={"trials": sweep.trials + 10}),
        "repeats": repeats,
        "is_active": row.status.is_active
        or bool(summary.counts.get(TrialState.RUNNING))
        or any(group.is_active for group in repeats),
    }
    if request.headers.get("HX-Request") != "true":
        context |= {
            "compared": compared_runs(sweep),
            "most_compared": MOST_COMPARED,
            "slices": Slices.of(sweep),
            "importance": sweep.importance_rows,
            "most_in_slices": MOST_IN_SLICES,
        }
    kept_trial = kept_trial_of(sweep)
    if kept_trial is not None:
        kept_text = f"failed: {kept_until_text(kept_trial.job.workload)}"
        context |= {"kept_trial": kept_trial, "kept_text": kept_text}
    context |= {"scheduled_run": run_of_sweep(sweep.pk), "step_run": step_of_sweep(sweep.pk)}
    return render(request, "web/sweeps/sweep.html", context | WHERE, status=status)
