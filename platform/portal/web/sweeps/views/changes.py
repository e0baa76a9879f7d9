"""Changes to a sweep: pause, resume, extend, repeat a trial, stop."""

import re

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods, require_POST

from portal.accounts.gates import gated_project
from portal.accounts.principal import require_principal
from portal.core.errors import SlipwayError
from portal.core.policy import guarded_by
from portal.sweeps.gates import SweepRole, gated_sweep
from portal.sweeps.models import Trial
from portal.sweeps.services.repeats import quote_repeats, repeat_trial
from portal.sweeps.services.sweeps import extend_sweep, pause_sweep, resume_sweep, stop_sweep
from portal.web.base.confirmation import Confirmation, show_confirmation
from portal.web.base.form_submission import error_text, one_click, sent, submit_form
from portal.web.base.list_query import search_parameter
from portal.web.base.urls_for import address_of
from portal.web.sweeps.forms import ExtensionForm, RepeatForm
from portal.web.sweeps.presenters import price_lines
from portal.web.sweeps.views.pages import WHERE, render_sweep
from slipway.schemas.accounts import Role, Scope
from slipway.schemas.sweeps import RepeatIn

_CHANGE = SweepRole(Role.CONTRIBUTOR, Scope.WORKLOADS_WRITE)


@guarded_by(_CHANGE)
@require_POST
def project_sweep_pause(request: HttpRequest, project: str, sweep: str) -> HttpResponse:
    """Start no further trials until the sweep is resumed."""
    row, by = gated_sweep(request), require_principal(request).user
    if one_click(request, lambda: pause_sweep(sweep=row, by=by)):
        messages.success(request, f"{row.name} is paused. Running trials go on.")
    return redirect(address_of(gated_project(request), "sweep", row.pk))


@guarded_by(_CHANGE)
@require_POST
def project_sweep_resume(request: HttpRequest, project: str, sweep: str) -> HttpResponse:
    """Go on with a paused sweep."""
    row, by = gated_sweep(request), require_principal(request).user
    if one_click(request, lambda: resume_sweep(sweep=row, by=by)):
        messages.success(request, f"{row.name} is running again.")
    return redirect(address_of(gated_project(request), "sweep", row.pk))


@guarded_by(_CHANGE)
@require_POST
def project_sweep_extend(request: HttpRequest, project: str, sweep: str) -> HttpResponse:
    """Let a sweep start more trials."""
    row, form = gated_sweep(request), ExtensionForm(request.POST)
    done = submit_form(request, form, lambda data: extend_sweep(sweep=row, trials=data["trials"]))
    if done is None:
        return render_sweep(request, form, status=422)
    messages.success(request, f"{row.name} runs up to {done.result.trials} trials.")
    return redirect(address_of(gated_project(request), "sweep", row.pk))


@guarded_by(_CHANGE)
@require_http_methods(["GET", "HEAD", "POST"])
def project_sweep_repeat(request: HttpRequest, project: str, sweep: str) -> HttpResponse:
    """Show the price of running a trial again with other seeds, then run it."""
    row, by = gated_sweep(request), require_principal(request).user
    back = address_of(gated_project(request), "sweep", row.pk)
    initial = {"trial": search_parameter(request, "trial"), "parameter": "seed"}
    form = RepeatForm(sent(request), initial=initial)
    done = submit_form(
        request, form, lambda _: repeat_trial(sweep=row, by=by, requested=form.requested)
    )
    if done is not None:
        messages.success(request, f"Trial {done.result.number} runs again with other seeds.")
        return redirect(back)
    text = str(form["trial"].value() or "")
    number = int(text) if re.fullmatch(r"[0-9]{1,6}", text) else None
    label = "the best trial" if number is None else f"trial {number}"
    try:
        requested = RepeatIn(trial=number)
        quote = quote_repeats(project=row.project, sweep=row, by=by, requested=requested)
        effects: tuple[str, ...] = price_lines(quote)
    except ValueError:
        effects = (f"There is no trial {number}.",)
    except SlipwayError as error:
        effects = (error_text(error),)
    question = Confirmation(
        title=f"Run {label} again with other seeds?",
        effects=effects,
        button="Run again",
        back=back,
        **WHERE,
    )
    return show_confirmation(request, question, form)


@guarded_by(_CHANGE)
@require_http_methods(["GET", "HEAD", "POST"])
def project_sweep_stop(request: HttpRequest, project: str, sweep: str) -> HttpResponse:
    """Ask, then end a sweep for good."""
    row, by = gated_sweep(request), require_principal(request).user
    back = address_of(gated_project(request), "sweep", row.pk)
    if request.method == "POST":
        if one_click(request, lambda: stop_sweep(sweep=row, by=by)):
            messages.success(request, f"{row.name} is stopped.")
        return redirect(back)
    running = Trial.objects.running().filter(sweep=row).count()
    jobs = (
        "No trial is running." if not running else f"Jobs of running trials are stopped: {running}."
    )
    if row.status.has_ended:
        effects = [f"{row.name} has already ended, so this has no effect."]
    else:
        effects = [jobs, "No further trials start, and the sweep cannot be resumed."]
    question = Confirmation(
        title=f"Stop {row.name}?",
        effects=(*effects, "Its trials, runs and costs are retained."),
        button="Stop the sweep",
        back=back,
        **WHERE,
    )
    return show_confirmation(request, question)
