"""Operations on schedules."""

from contextlib import suppress
from typing import Any

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest
from ninja import Router, Status
from pydantic import TypeAdapter, ValidationError

from portal.accounts.gates import ProjectRole, gated_project
from portal.accounts.principal import require_principal
from portal.api.bodies import parse_json
from portal.api.idempotency import key_of
from portal.api.routing import gate
from portal.api.throttle import hook_throttle
from portal.api.v1.serializers import PageParameters, SearchParameters, page_of
from portal.core import clock
from portal.core.errors import InvalidInput, TooLarge
from portal.core.pagination import Page, paginate, paginate_sorted
from portal.core.policy import Public
from portal.pipelines.cron import next_times
from portal.pipelines.gates import ScheduleRole, gated_schedule, require_scopes_of_schedule
from portal.pipelines.models import ProjectSchedule, ScheduledRun
from portal.pipelines.services import schedules as services
from portal.pipelines.services.schedule_payers import require_use_of_payer
from portal.pipelines.services.triggers import create_hook, receive_call, schedule_of_hook
from portal.pipelines.summaries import last_runs
from slipway.schemas.accounts import Role, Scope
from slipway.schemas.base import JsonObject, PageOf
from slipway.schemas.schedules import (
    DEFAULT_PREVIEWED,
    HookAnswer,
    HookOut,
    PreviewIn,
    ScheduledRunOut,
    ScheduleEdit,
    ScheduleIn,
    ScheduleOut,
    SchedulePreview,
    ScheduleState,
)
from slipway.schemas.triggers import MAX_BODY_BYTES, TriggerOut

router = Router(tags=["Schedules"])
_RUN = ProjectRole(Role.CONTRIBUTOR, Scope.WORKLOADS_WRITE)
_SEE_ALL = ProjectRole(Role.VIEWER, Scope.WORKLOADS_READ)
_SEE = ScheduleRole(Role.VIEWER, Scope.WORKLOADS_READ)
_CHANGE = ScheduleRole(Role.CONTRIBUTOR, Scope.WORKLOADS_WRITE)
_SCHEDULES = "/projects/{project}/schedules"
_SCHEDULE = "/projects/{project}/schedules/{schedule}"


def _out(
    schedule: ProjectSchedule, last: ScheduledRun | None, *, details: bool = False
) -> ScheduleOut:
    times = []
    if details and schedule.cron and schedule.status == ScheduleState.ACTIVE:
        times = next_times(schedule.cron, schedule.zone, after=clock.now(), count=DEFAULT_PREVIEWED)
    return ScheduleOut(
        id=schedule.pk,
        project=schedule.project.slug,
        name=schedule.name,
        state=schedule.status,
        explanation=schedule.explanation,
        next_step=schedule.next_step or None,
        cron=schedule.cron,
        trigger=TriggerOut.model_validate(schedule.trigger) if schedule.trigger else None,
        hook_created_at=schedule.hook_created_at,
        zone=schedule.zone,
        job=schedule.job_id,
        sweep=schedule.sweep_id,
        pipeline=schedule.pipeline or None,
        pipeline_run=schedule.pipeline_run_id,
        parameters=schedule.parameters,
        script=schedule.script,
        tier=schedule.tier,
        missed=schedule.missed,
        overlap=schedule.overlap,
        owner=schedule.owner.email,
        next_at=schedule.next_at,
        next_times=times,
        last_run=None if last is None else _run_out(last),
        created_at=schedule.created_at,
    )


def _run_out(run: ScheduledRun) -> ScheduledRunOut:
    return ScheduledRunOut(
        id=run.pk,
        due_at=run.due_at,
        state=run.status,
        reason=run.reason,
        job=run.job_id,
        sweep=run.sweep_id,
        pipeline_run=run.pipeline_run_id,
        outcome=run.outcome,
        requested_by=run.requested_by.email if run.requested_by else None,
        event=None if run.event is None else {"id": run.event.pk, **run.event.details},
        created_at=run.created_at,
    )


def _shown(schedule: ProjectSchedule) -> ScheduleOut:
    """Serialize a schedule, after a change as it is by now."""
    fresh = ProjectSchedule.objects.of_project(schedule.project).get(pk=schedule.pk)
    return _out(fresh, last_runs([fresh]).get(fresh.pk), details=True)


@router.get(_SCHEDULES, auth=gate(_SEE_ALL), response=PageOf[ScheduleOut])
def list_schedules(
    request: HttpRequest, project: str, query: SearchParameters
) -> PageOf[ScheduleOut]:
    """List the schedules of a project, newest first."""
    schedules = ProjectSchedule.objects.of_project(gated_project(request))
    if query.q:
        schedules = schedules.filter(name__icontains=query.q)
    page: Page[ProjectSchedule] = paginate(schedules, cursor=query.cursor, limit=query.limit)
    last = last_runs(page.items)
    return page_of(page, lambda schedule: _out(schedule, last.get(schedule.pk)))


@router.post(_SCHEDULES, auth=gate(_RUN), response={201: ScheduleOut})
def create_schedule(request: HttpRequest, project: str, payload: ScheduleIn) -> Status[ScheduleOut]:
    """Create a schedule of a job, a sweep or a pipeline.

    The caller pays for what it starts, or the service account that `run_as` names.
    """
    require_scopes_of_schedule(request, requested=payload)
    by = require_principal(request).user
    schedule = services.create_schedule(project=gated_project(request), by=by, requested=payload)
    return Status(201, _shown(schedule))


@router.post(f"{_SCHEDULES}/preview", auth=gate(_SEE_ALL), response=SchedulePreview)
def preview_schedule(request: HttpRequest, project: str, payload: PreviewIn) -> SchedulePreview:
    """Get the next times of a cron expression in a time zone. Nothing is created."""
    return services.preview_times(payload)


@router.get(_SCHEDULE, auth=gate(_SEE), response=ScheduleOut)
def get_schedule(request: HttpRequest, project: str, schedule: str) -> ScheduleOut:
    """Get a schedule, with its next times and its last run."""
    return _shown(gated_schedule(request))


@router.patch(_SCHEDULE, auth=gate(_CHANGE), response=ScheduleOut)
def update_schedule(
    request: HttpRequest, project: str, schedule: str, payload: ScheduleEdit
) -> ScheduleOut:
    """Change a schedule. The caller pays for what it starts from then on.

    A service account that paid goes on to pay if the caller may use it.
    """
    row, by = gated_schedule(request), require_principal(request).user
    require_scopes_of_schedule(request, schedule=row, requested=payload)
    return _shown(services.change_schedule(schedule=row, by=by, edit=payload))


@router.delete(_SCHEDULE, auth=gate(_CHANGE), response={204: None})
def delete_schedule(request: HttpRequest, project: str, schedule: str) -> Status[None]:
    """Delete a schedule. What it has started goes on."""
    services.delete_schedule(schedule=gated_schedule(request))
    return Status(204, None)


@router.post(f"{_SCHEDULE}/pause", auth=gate(_CHANGE), response=ScheduleOut)
def pause_schedule(request: HttpRequest, project: str, schedule: str) -> ScheduleOut:
    """Start nothing until the schedule is resumed. What it has started goes on."""
    by = require_principal(request).user
    return _shown(services.pause_schedule(schedule=gated_schedule(request), by=by))


@router.post(f"{_SCHEDULE}/resume", auth=gate(_CHANGE), response=ScheduleOut)
def resume_schedule(request: HttpRequest, project: str, schedule: str) -> ScheduleOut:
    """Go on with a paused schedule. The caller pays for what it starts from then on.

    A service account that paid goes on to pay if the caller may use it.
    """
    row, by = gated_schedule(request), require_principal(request).user
    require_scopes_of_schedule(request, schedule=row)
    return _shown(services.resume_schedule(schedule=row, by=by))


@router.post(f"{_SCHEDULE}/run", auth=gate(_CHANGE), response={201: ScheduledRunOut})
def run_schedule(request: HttpRequest, project: str, schedule: str) -> Status[ScheduledRunOut]:
    """Run a schedule once at once, beside its times. The caller pays for it."""
    row, by = gated_schedule(request), require_principal(request).user
    require_scopes_of_schedule(request, schedule=row)
    run = services.run_schedule(schedule=row, by=by)
    return Status(201, _run_out(run))


@router.get(f"{_SCHEDULE}/runs", auth=gate(_SEE), response=PageOf[ScheduledRunOut])
def list_scheduled_runs(
    request: HttpRequest, project: str, schedule: str, query: PageParameters
) -> PageOf[ScheduledRunOut]:
    """List the runs of a schedule, the latest first, with the reasons of those not started."""
    runs = ScheduledRun.objects.with_outcomes().filter(schedule=gated_schedule(request))
    page = paginate_sorted(runs, order="-due_at", cursor=query.cursor, limit=query.limit)
    return page_of(page, _run_out)


@router.post(f"{_SCHEDULE}/hook", auth=gate(_CHANGE), response={201: HookOut})
def create_schedule_hook(request: HttpRequest, project: str, schedule: str) -> Status[HookOut]:
    """Create the secret URL of the webhook that starts a schedule. An older one ends.

    The URL is shown only here. Whoever has it can start the schedule.
    """
    row = gated_schedule(request)
    require_scopes_of_schedule(request, schedule=row)
    require_use_of_payer(schedule=row, by=require_principal(request).user)
    secret = create_hook(schedule=row)
    return Status(201, HookOut(url=f"{settings.SLIPWAY_URL}/api/v1/hooks/{secret}"))


@router.post(
    "/hooks/{hook}",
    auth=gate(Public("the secret in the address is the proof")),
    response={202: HookAnswer},
)
def call_hook(request: HttpRequest, hook: str) -> Status[HookAnswer]:
    """Start the schedule of a webhook. The body is a JSON object of at most 32 KiB, or empty.

    With an Idempotency-Key, a call that is repeated starts nothing more.
    """
    schedule = schedule_of_hook(hook)
    hook_throttle.hit(schedule.pk)
    event = receive_call(schedule=schedule, body=_hook_body(request), key=key_of(request) or "")
    return Status(202, HookAnswer(event=event.pk))


def _hook_body(request: HttpRequest) -> dict[str, Any]:
    try:
        body = request.body
    except RequestDataTooBig:
        body = b" " * (MAX_BODY_BYTES + 1)
    if len(body) > MAX_BODY_BYTES:
        raise TooLarge(
            f"The body is larger than {MAX_BODY_BYTES // 1024} KiB.",
            next_step="Send less, such as an id by which the job can read the rest.",
        )
    content = parse_json(body) if body.strip() else {}
    if rb"\u0000" not in body:  # which PostgreSQL cannot store
        with suppress(ValidationError):
            return TypeAdapter(JsonObject).validate_python(content)
    raise InvalidInput(
        "The body is not a JSON object that can be stored.",
        code="invalid_json",
        next_step='Send an object without NUL and half characters, such as {"ref": "main"}.',
    )
