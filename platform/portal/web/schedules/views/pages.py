"""Schedules of a project: the list, and the page of one."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from portal.accounts.gates import ProjectRole, gated_project, gated_role
from portal.core.policy import guarded_by
from portal.pipelines.gates import ScheduleRole, gated_schedule
from portal.pipelines.models import ProjectSchedule, ScheduledRun
from portal.pipelines.summaries import last_runs
from portal.web.base.list_query import Select, listing, search_parameter
from portal.web.schedules.presenters import (
    MISSED_TEXTS,
    OVERLAP_TEXTS,
    ScheduledRunRow,
    ScheduleRow,
    ScheduleStatus,
    upcoming_texts,
)
from slipway.schemas.accounts import Role, Scope
from slipway.schemas.schedules import ScheduledRunState, ScheduleState

WHERE = {"area": "projects", "section": "schedules"}
_ROWS = 20
_STATES = [(state.value, state.value.capitalize()) for state in ScheduleState]
_RUN_STATES = [(state.value, state.value.capitalize()) for state in ScheduledRunState]


@guarded_by(ProjectRole(Role.VIEWER, Scope.WORKLOADS_READ))
@require_safe
def project_schedules(request: HttpRequest, project: str) -> HttpResponse:
    """List the schedules, newest first."""
    schedules = ProjectSchedule.objects.of_project(gated_project(request))
    schedules = schedules.filter(name__icontains=search_parameter(request, "q"))
    if request.GET.get("state") in dict(_STATES):
        schedules = schedules.filter(state=request.GET["state"])
    selects = (Select("state", "State", _STATES),)
    shown = listing(request, schedules, selects=selects, limit=_ROWS)
    last = last_runs(shown.page.items)
    context = {
        "listing": shown,
        "region": "schedules",
        "rows": [ScheduleRow.of(row, last.get(row.pk)) for row in shown.page.items],
        "may_run": gated_role(request).at_least(Role.CONTRIBUTOR),
    }
    return render(request, "web/schedules/list.html", context | WHERE)


@guarded_by(ScheduleRole(Role.VIEWER, Scope.WORKLOADS_READ))
@require_safe
def project_schedule(request: HttpRequest, project: str, schedule: str) -> HttpResponse:
    """Show a schedule: its state, its next times, its settings and its runs."""
    return render_schedule(request)


def render_schedule(request: HttpRequest, hook_url: str = "") -> HttpResponse:
    """Render the page of a schedule. `hook_url` is the URL of its webhook, which is shown once."""
    row = gated_schedule(request)
    runs = ScheduledRun.objects.with_outcomes().filter(schedule=row)
    if request.GET.get("state") in dict(_RUN_STATES):
        runs = runs.filter(state=request.GET["state"])
    selects = (Select("state", "State", _RUN_STATES),)
    shown = listing(request, runs, filters=(), selects=selects, limit=_ROWS)
    context = {
        "schedule": row,
        "it": ScheduleStatus.of(row.state),
        "upcoming": upcoming_texts(row),
        "hook_url": hook_url,
        "missed": MISSED_TEXTS[row.missed],
        "overlap": OVERLAP_TEXTS[row.overlap],
        "listing": shown,
        "region": "runs",
        "rows": [ScheduledRunRow.of(run, row) for run in shown.page.items],
        "may_run": gated_role(request).at_least(Role.CONTRIBUTOR),
    }
    return render(request, "web/schedules/schedule.html", context | WHERE)
