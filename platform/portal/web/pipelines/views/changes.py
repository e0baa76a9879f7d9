"""Changes to a run of a pipeline: cancel, resume, repeat, and decisions about its steps."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods, require_POST

from portal.accounts.gates import gated_project
from portal.accounts.principal import require_principal
from portal.core.policy import guarded_by
from portal.pipelines.gates import PipelineRunRole, gated_pipeline_run
from portal.pipelines.models import StepRun
from portal.pipelines.services.pipeline_runs import (
    cancel_run,
    decide_step,
    repeat_run,
    resume_run,
)
from portal.registry.services.actors import Actor
from portal.web.base.confirmation import Confirmation, show_confirmation
from portal.web.base.form_submission import one_click
from portal.web.base.urls_for import address_of
from portal.web.pipelines.forms import DecisionForm
from portal.web.pipelines.views.pages import WHERE, render_run
from slipway.schemas.accounts import Role, Scope
from slipway.schemas.pipelines import StepState

_CHANGE = PipelineRunRole(Role.CONTRIBUTOR, Scope.WORKLOADS_WRITE)


@guarded_by(_CHANGE)
@require_http_methods(["GET", "HEAD", "POST"])
def project_pipeline_cancel(request: HttpRequest, project: str, pipeline_run: str) -> HttpResponse:
    """Ask, then end a run and its jobs."""
    run, by = gated_pipeline_run(request), require_principal(request).user
    back = address_of(gated_project(request), "pipeline_run", run.pk)
    if request.method == "POST":
        if one_click(request, lambda: cancel_run(run=run, by=by)):
            messages.success(request, f"The run of {run.name} is {run.state}.")
        return redirect(back)
    jobs = StepRun.objects.filter(run=run, state=StepState.RUNNING, job__isnull=False).count()
    if run.status.has_ended:
        effects = [f"The run is {run.state} already, so this has no effect."]
    else:
        effects = [
            f"Jobs that are stopped: {jobs}." if jobs else "None of its jobs is running.",
            "Steps that have not started are cancelled.",
        ]
    question = Confirmation(
        title=f"Cancel this run of {run.name}?",
        effects=(*effects, "Outputs of steps that have succeeded are retained. Resume continues."),
        button="Cancel the run",
        back=back,
        **WHERE,
    )
    return show_confirmation(request, question)


@guarded_by(_CHANGE)
@require_POST
def project_pipeline_resume(request: HttpRequest, project: str, pipeline_run: str) -> HttpResponse:
    """Go on with a failed or cancelled run, at the expense of the person who asks."""
    run, by = gated_pipeline_run(request), require_principal(request).user
    if one_click(request, lambda: resume_run(run=run, by=by)):
        messages.success(request, f"{run.name} is running again. You pay for its further jobs.")
    return redirect(address_of(gated_project(request), "pipeline_run", run.pk))


@guarded_by(_CHANGE)
@require_POST
def project_pipeline_repeat(request: HttpRequest, project: str, pipeline_run: str) -> HttpResponse:
    """Start a new run with the same pipeline, parameters and code."""
    run, by = gated_pipeline_run(request), require_principal(request).user
    force = request.POST.get("force") == "yes"
    started = one_click(request, lambda: repeat_run(run=run, by=by, force=force))
    if started is not None:
        messages.success(request, f"A new run of {run.name} has started. You pay for its jobs.")
        run = started.result
    return redirect(address_of(gated_project(request), "pipeline_run", run.pk))


@guarded_by(_CHANGE)
@require_POST
def project_pipeline_decide(
    request: HttpRequest, project: str, pipeline_run: str, step: str
) -> HttpResponse:
    """Approve or decline a step that waits for approval."""
    run, by = gated_pipeline_run(request), Actor.of(require_principal(request))
    form = DecisionForm.of_step(step, request.POST)
    if not form.is_valid():
        return render_run(request, {step: form}, status=422)
    decision = form.decision
    if one_click(request, lambda: decide_step(run=run, step=step, by=by, decision=decision)):
        verb = "approved" if decision.verdict == "approve" else "declined"
        messages.success(request, f"Step {step} is {verb}.")
    return redirect(address_of(gated_project(request), "pipeline_run", run.pk))
