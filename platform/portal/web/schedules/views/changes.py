"""Changes to a schedule: pause, resume, run now, delete."""

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods, require_POST

from portal.accounts.gates import gated_project
from portal.accounts.principal import require_principal
from portal.core.policy import guarded_by
from portal.pipelines.gates import ScheduleRole, gated_schedule
from portal.pipelines.models import ScheduledRun
from portal.pipelines.services.schedule_payers import require_use_of_payer
from portal.pipelines.services.schedules import (
    delete_schedule,
    pause_schedule,
    resume_schedule,
    run_schedule,
)
from portal.pipelines.services.triggers import create_hook
from portal.web.base.confirmation import Confirmation, show_confirmation
from portal.web.base.form_submission import one_click
from portal.web.base.urls_for import address_of
from portal.web.schedules.views.pages import WHERE, render_schedule
from slipway.schemas.accounts import Role, Scope

_CHANGE = ScheduleRole(Role.CONTRIBUTOR, Scope.WORKLOADS_WRITE)


@guarded_by(_CHANGE)
@require_POST
def project_schedule_pause(request: HttpRequest, project: str, schedule: str) -> HttpResponse:
    """Start nothing until the schedule is resumed."""
    row, by = gated_schedule(request), require_principal(request).user
    if one_click(request, lambda: pause_schedule(schedule=row, by=by)):
        messages.success(request, f"{row.name} is paused. What it has started goes on.")
    return redirect(address_of(gated_project(request), "schedule", row.name))


@guarded_by(_CHANGE)
@require_POST
def project_schedule_resume(request: HttpRequest, project: str, schedule: str) -> HttpResponse:
    """Go on with a paused schedule."""
    row, by = gated_schedule(request), require_principal(request).user
    if one_click(request, lambda: resume_schedule(schedule=row, by=by)):
        payer = row.owner.display_name if row.owner.is_service_account else "You"
        verb = "pays" if row.owner.is_service_account else "pay"
        messages.success(request, f"{row.name} is active again. {payer} {verb} for what it starts.")
    return redirect(address_of(gated_project(request), "schedule", row.name))


@guarded_by(_CHANGE)
@require_POST
def project_schedule_run(request: HttpRequest, project: str, schedule: str) -> HttpResponse:
    """Run a schedule once at once, beside its times."""
    row, by = gated_schedule(request), require_principal(request).user
    if one_click(request, lambda: run_schedule(schedule=row, by=by)):
        messages.success(request, f"A run of {row.name} starts within seconds. You pay for it.")
    return redirect(address_of(gated_project(request), "schedule", row.name))


@guarded_by(_CHANGE)
@require_POST
def project_schedule_hook(request: HttpRequest, project: str, schedule: str) -> HttpResponse:
    """Create the secret URL of a schedule's webhook, and show it once."""
    row, by = gated_schedule(request), require_principal(request).user

    def create() -> str:
        require_use_of_payer(schedule=row, by=by)
        return create_hook(schedule=row)

    done = one_click(request, create)
    if done is None:
        return redirect(address_of(gated_project(request), "schedule", row.name))
    url = f"{settings.SLIPWAY_URL}/api/v1/hooks/{done.result}"
    return render_schedule(request, hook_url=url)


@guarded_by(_CHANGE)
@require_http_methods(["GET", "HEAD", "POST"])
def project_schedule_delete(request: HttpRequest, project: str, schedule: str) -> HttpResponse:
    """Ask, then delete a schedule."""
    row, place = gated_schedule(request), gated_project(request)
    if request.method == "POST":
        if one_click(request, lambda: delete_schedule(schedule=row)):
            messages.success(request, f"{row.name} is deleted.")
        return redirect(address_of(place, "schedules"))
    waiting = ScheduledRun.objects.waiting(row).count()
    effects = ["It starts nothing more, and cannot be restored."]
    if waiting:
        effects.append(f"Runs that wait are left out: {waiting}.")
    question = Confirmation(
        title=f"Delete {row.name}?",
        effects=(
            *effects,
            "Jobs, sweeps and pipelines that it has started are retained, and go on.",
        ),
        button="Delete the schedule",
        back=address_of(place, "schedule", row.name),
        **WHERE,
    )
    return show_confirmation(request, question)
