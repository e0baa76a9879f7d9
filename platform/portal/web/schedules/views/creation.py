"""Creating and changing a schedule: the form, and the next times of its expression."""

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST
from pydantic import ValidationError

from portal.accounts.gates import ProjectRole, gated_project
from portal.accounts.models import Project, User
from portal.accounts.principal import require_principal
from portal.core.errors import SlipwayError
from portal.core.policy import guarded_by
from portal.pipelines.cron import zone_names
from portal.pipelines.gates import ScheduleRole, gated_schedule
from portal.pipelines.models import PipelineRun, ProjectSchedule
from portal.pipelines.services.schedule_payers import payer_choices
from portal.pipelines.services.schedules import (
    change_schedule,
    create_schedule,
    preview_times,
)
from portal.sweeps.models import Sweep
from portal.training.models import Job
from portal.web.base.form_submission import error_text, sent, status_of, submit_form
from portal.web.base.list_query import search_parameter
from portal.web.base.urls_for import address_of
from portal.web.schedules.forms import FRESH, EditSchedule, NewSchedule, ScheduleForm
from portal.web.schedules.presenters import local_text
from portal.web.schedules.views.pages import WHERE
from slipway.schemas.accounts import Role, Scope
from slipway.schemas.schedules import PreviewIn
from slipway.schemas.triggers import TriggerIn, trigger_text

_RUN = ProjectRole(Role.CONTRIBUTOR, Scope.WORKLOADS_WRITE)
_SUGGESTED = 10


@guarded_by(_RUN)
@require_http_methods(["GET", "HEAD", "POST"])
def project_schedule_new(request: HttpRequest, project: str) -> HttpResponse:
    """Show the form of a new schedule, create it. `?job=` … name what it repeats."""
    project_row, by = gated_project(request), require_principal(request).user
    names = ("job", "sweep", "pipeline_run")
    template = next(filter(None, (search_parameter(request, name) for name in names)), "")
    payers = payer_choices(project=project_row, by=by)
    form = NewSchedule(sent(request), initial=FRESH | {"template": template}, payers=payers)
    done = None
    if request.POST.get("do") != "preview":
        done = submit_form(request, form, lambda _: _create(project_row, by, form))
    if done:
        messages.success(request, f"{done.result.name} created.")
        return redirect(address_of(project_row, "schedule", done.result.name))
    return _show_form(request, form)


@guarded_by(ScheduleRole(Role.CONTRIBUTOR, Scope.WORKLOADS_WRITE))
@require_http_methods(["GET", "HEAD", "POST"])
def project_schedule_edit(request: HttpRequest, project: str, schedule: str) -> HttpResponse:
    """Show the form of a schedule, change it."""
    row, by = gated_schedule(request), require_principal(request).user
    payers = payer_choices(project=gated_project(request), by=by, schedule=row)
    form = EditSchedule(sent(request), schedule=row, payers=payers)
    done = None
    if request.POST.get("do") != "preview":
        done = submit_form(request, form, lambda _: _change(row, by, form))
    if done:
        messages.success(request, f"{row.name} saved.")
        return redirect(address_of(gated_project(request), "schedule", row.name))
    return _show_form(request, form, row)


@guarded_by(_RUN)
@require_POST
def project_schedule_preview(request: HttpRequest, project: str) -> HttpResponse:
    """Show the next times of the expression in the form. Nothing is created."""
    form = ScheduleForm(request.POST)
    context = _preview(form)
    return render(request, "web/schedules/preview.html", context)


def _create(project: Project, by: User, form: NewSchedule) -> ProjectSchedule:
    requested = form.payload
    assert requested is not None  # noqa: S101  (the form is valid)
    return _with_template(lambda: create_schedule(project=project, by=by, requested=requested))


def _change(schedule: ProjectSchedule, by: User, form: EditSchedule) -> ProjectSchedule:
    edit = form.payload
    assert edit is not None  # noqa: S101  (the form is valid)
    return _with_template(lambda: change_schedule(schedule=schedule, by=by, edit=edit))


def _with_template(service: Callable[[], ProjectSchedule]) -> ProjectSchedule:
    """Call a service, whose fields about what is repeated are one in the form."""
    try:
        return service()
    except SlipwayError as error:
        first = (error.field or "").partition(".")[0]
        if first in ("job", "sweep", "pipeline_run", "pipeline", "steps", "snapshot"):
            error.field = "template"
        elif first == "parameters":
            error.field = first
        elif first == "trigger":
            error.field = "subject"
        raise


def _show_form(
    request: HttpRequest, form: ScheduleForm, schedule: ProjectSchedule | None = None
) -> HttpResponse:
    project = gated_project(request)
    context = {
        "form": form,
        "schedule": schedule,
        "zones": zone_names(),
        "suggestions": _suggestions(project),
        **_preview(form),
    }
    is_preview = request.POST.get("do") == "preview"
    status = 200 if is_preview else status_of(form)
    return render(request, "web/schedules/form.html", context | WHERE, status=status)


def _suggestions(project: Project) -> list[tuple[str, str]]:
    """Return the ids and names of the newest jobs, sweeps and runs of pipelines."""
    jobs = Job.objects.filter(workload__project=project).select_related("workload")
    sweeps = Sweep.objects.filter(project=project).order_by("-pk")[:_SUGGESTED]
    runs = PipelineRun.objects.filter(project=project).order_by("-pk").only("name")[:_SUGGESTED]
    return [
        *((run.pk, f"pipeline {run.name}") for run in runs),
        *((job.pk, f"job {job.workload.name}") for job in jobs.order_by("-pk")[:_SUGGESTED]),
        *((sweep.pk, f"sweep {sweep.name}") for sweep in sweeps),
    ]


def _preview(form: ScheduleForm) -> dict[str, Any]:
    """Return the next times of the form, or its trigger in words."""
    names = ("event", "subject", "target", "cron", "zone")
    data = {name: str(form[name].value() or "") for name in names}
    cron, zone = data["cron"], data["zone"]
    if data["event"]:
        try:
            trigger = TriggerIn.model_validate(form.start_of(data)["trigger"])
        except ValidationError:
            return {"times": [], "preview_fault": "Name what the event is about."}
        return {"times": [], "preview_fault": f"For each {trigger_text(trigger)}."}
    try:
        times = preview_times(PreviewIn(cron=cron, zone=zone)).times
    except SlipwayError as error:
        return {"times": [], "preview_fault": error_text(error)}
    except ValidationError:
        return {"times": [], "preview_fault": ""}
    return {"times": [local_text(at, zone.strip()) for at in times], "preview_fault": ""}
