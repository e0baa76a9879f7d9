"""Creating, changing, pausing, resuming and deleting schedules, and running them at once.

Work is started by `portal.pipelines.services.progress`, in the control worker.
"""

from typing import Any

from django.db import IntegrityError, transaction

from portal.accounts import audit
from portal.accounts.models import Project, User
from portal.core import clock
from portal.core.enqueue import enqueue_on_commit
from portal.core.errors import Conflict, InvalidInput, NotFound, SlipwayError
from portal.pipelines.cron import check_cron, next_times
from portal.pipelines.dues import MOST_WAITING
from portal.pipelines.models import ProjectSchedule, ScheduledRun
from portal.pipelines.services.progress import active_run, make_way
from portal.pipelines.services.schedule_payers import named_payer, next_payer, note_payer
from portal.pipelines.services.schedule_templates import template_of, with_parameters
from portal.pipelines.services.triggers import check_trigger
from portal.pipelines.tasks import advance
from portal.pipelines.transitions import (
    change,
    delete,
    forget_events,
    forget_refusals,
    hold,
    pause,
    resume,
    skip_all_waiting,
    skip_waiting,
)
from slipway.schemas.schedules import (
    MOST_SCHEDULES,
    MissedRule,
    OverlapRule,
    PreviewIn,
    ScheduleEdit,
    ScheduleIn,
    SchedulePreview,
    ScheduleState,
)
from slipway.schemas.triggers import TriggerIn

# Addresses beside those of schedules.
_RESERVED = ("new", "preview")
_RECORDED = ("cron", "zone", "trigger", "missed", "overlap", "owner_id")
_RECORDED_WORK = ("job_id", "sweep_id", "pipeline_run_id", "pipeline", "parameters")


def create_schedule(*, project: Project, by: User, requested: ScheduleIn) -> ProjectSchedule:
    """Create a schedule of a job, a sweep or a pipeline, in the name of `by` or of an account.

    Whatever is wrong with it, or with that, is refused here. Raises InvalidInput, naming the
    field, Forbidden for a service account that `by` may not use, and Conflict for a name that is
    taken or too many schedules.
    """
    if requested.name in _RESERVED:
        raise InvalidInput(
            f"A schedule cannot be named {requested.name}.",
            field="name",
            next_step="Choose another name, such as nightly.",
        )
    now, trigger = clock.now(), requested.trigger
    next_at = (
        None if requested.cron is None else check_cron(requested.cron, requested.zone, now=now)
    )
    _check_rules(requested.missed, requested.overlap)
    payer = named_payer(project=project, by=by, run_as=requested.run_as)
    template = template_of(project, payer, requested, trigger.event if trigger else "")
    if trigger is not None:
        check_trigger(project, trigger, template.pipeline_request)
    with transaction.atomic():
        _require_room(project)
        try:
            with transaction.atomic():
                schedule = ProjectSchedule.objects.create(
                    project=project,
                    owner=payer,
                    name=requested.name,
                    cron=_spaced(requested.cron or ""),
                    trigger=None if trigger is None else _dumped(trigger),
                    events_from=None if trigger is None else now,
                    zone=requested.zone,
                    **template.columns,
                    missed=requested.missed,
                    overlap=requested.overlap,
                    next_at=next_at,
                )
        except IntegrityError as error:
            raise Conflict(
                f"There is a schedule {requested.name} in this project.",
                code="name_taken",
                field="name",
                next_step="Choose another name, or change that schedule.",
            ) from error
        note_payer(payer, by)
        _record("schedule.create", schedule, after=_recorded(schedule))
    return schedule


def change_schedule(*, schedule: ProjectSchedule, by: User, edit: ScheduleEdit) -> ProjectSchedule:
    """Change a schedule. The person who changes it pays from then on, or an account. Idempotent.

    What it starts stays exactly as it was, unless the edit names something else or its parameters.
    Raises InvalidInput, naming the field, Forbidden for a service account that `by` may not use,
    and Conflict if somebody else changes it at that moment.
    """
    now = clock.now()
    if edit.run_as is not None:
        payer = named_payer(project=schedule.project, by=by, run_as=edit.run_as)
    else:
        payer = next_payer(schedule=schedule, by=by)
    changes: dict[str, Any] = {
        "zone": edit.zone or schedule.zone,
        "missed": edit.missed or schedule.missed,
        "overlap": edit.overlap or schedule.overlap,
        **_start_of(schedule, edit),
    }
    cron, trigger = changes["cron"], changes["trigger"]
    next_at = check_cron(cron, changes["zone"], now=now) if cron else None
    _check_rules(changes["missed"], changes["overlap"])
    event = trigger["event"] if trigger else ""
    if edit.names_template:
        changes |= template_of(schedule.project, payer, edit, event).columns
    elif edit.parameters or event != schedule.event:
        changes["request"] = with_parameters(schedule, payer, edit.parameters or {}, event)
    if trigger is not None:
        is_pipeline = edit.names_pipeline if edit.names_template else schedule.starts_pipelines
        request = changes.get("request", schedule.request) if is_pipeline else None
        check_trigger(schedule.project, TriggerIn.model_validate(trigger), request)
    if edit.run_as is not None:
        changes["owner_id"] = payer.pk
    changes = {key: value for key, value in changes.items() if getattr(schedule, key) != value}
    if not changes:
        return schedule
    changes["owner_id"] = payer.pk
    if payer.is_service_account and payer.pk != schedule.owner_id:
        # Others may have the URL, and could start work of the account by it.
        changes |= {"hook_digest": "", "hook_created_at": None}
    before = _recorded(schedule)
    if schedule.status == ScheduleState.ACTIVE and not {"cron", "zone"}.isdisjoint(changes):
        changes["next_at"] = next_at
    if "trigger" in changes:
        changes |= {"events_from": None if trigger is None else now, "hook_digest": ""}
        changes["hook_created_at"] = None
    with transaction.atomic():
        if not change(schedule, **changes):
            raise _changed(schedule)
        note_payer(payer, by)
        forget_refusals(schedule)
        if "trigger" in changes:
            forget_events(schedule)
        schedule = ProjectSchedule.objects.of_project(schedule.project).get(pk=schedule.pk)
        old, new = audit.difference(before, _recorded(schedule))
        _record("schedule.change", schedule, before=old, after=new)
    return schedule


def pause_schedule(*, schedule: ProjectSchedule, by: User) -> ProjectSchedule:
    """Start nothing until the schedule is resumed. What it has started goes on. Idempotent."""
    with transaction.atomic():
        if pause(schedule, explanation=f"Paused by {by.display_name}.", by=by):
            skip_waiting(schedule, reason=f"The schedule was paused by {by.display_name}.")
            forget_events(schedule)
            _record("schedule.pause", schedule)
    return schedule


def resume_schedule(*, schedule: ProjectSchedule, by: User) -> ProjectSchedule:
    """Go on with a paused schedule, from its next time on. Idempotent.

    The person who resumes it pays from then on, or the service account that paid, if they may use
    it. Raises InvalidInput if its expression matches no further date.
    """
    next_at = None
    if schedule.cron:
        next_at = check_cron(schedule.cron, schedule.zone, now=clock.now())
    payer = next_payer(schedule=schedule, by=by)
    with transaction.atomic():
        if resume(schedule, next_at=next_at, owner=payer):
            note_payer(payer, by)
            _record("schedule.resume", schedule)
    return schedule


def run_schedule(*, schedule: ProjectSchedule, by: User) -> ScheduledRun:
    """Run a schedule once at once, beside its times. The person who asks for it pays.

    It starts within seconds, or waits for the run before, as the schedule's rule for overlaps says.
    Raises Conflict if a run goes on and the rule is to skip, or if too many runs wait.
    """
    with transaction.atomic():
        if not hold(schedule):
            raise NotFound
        waiting = ScheduledRun.objects.waiting(schedule).count()
        goes_on = active_run(schedule) is not None
        if schedule.overlap == "skip" and (goes_on or waiting):
            raise Conflict(
                f"A run of {schedule.name} goes on.",
                code="run_goes_on",
                next_step="Wait until it has ended, or change the rule for overlaps to queue.",
            )
        if schedule.overlap == "queue" and waiting >= MOST_WAITING:
            raise Conflict(
                f"{waiting} runs of {schedule.name} are waiting.",
                code="too_many_waiting",
                next_step="Wait until some have ended.",
            )
        if schedule.overlap == "cancel":
            make_way(schedule)
        run = ScheduledRun.objects.create(schedule=schedule, due_at=clock.now(), requested_by=by)
        _record("schedule.run", schedule)
        enqueue_on_commit(advance, schedule.pk)
    return run


def delete_schedule(*, schedule: ProjectSchedule) -> None:
    """Delete a schedule. What it has started goes on, and runs that wait are left out."""
    with transaction.atomic():
        if delete(schedule):
            skip_all_waiting(schedule, reason="The schedule was deleted.")
            _record("schedule.delete", schedule)


def preview_times(requested: PreviewIn) -> SchedulePreview:
    """Return the next times of a cron expression. Raises InvalidInput, naming the field."""
    now = clock.now()
    check_cron(requested.cron, requested.zone, now=now)
    cron = _spaced(requested.cron)
    times = next_times(cron, requested.zone, after=now, count=requested.count)
    return SchedulePreview(cron=cron, zone=requested.zone, times=times)


def _start_of(schedule: ProjectSchedule, edit: ScheduleEdit) -> dict[str, Any]:
    """Return the times or the trigger of a schedule after a change."""
    if edit.trigger is not None:
        return {"cron": "", "trigger": _dumped(edit.trigger)}
    if edit.cron is not None:
        return {"cron": _spaced(edit.cron), "trigger": None}
    return {"cron": schedule.cron, "trigger": schedule.trigger}


def _dumped(trigger: TriggerIn) -> dict[str, Any]:
    return trigger.model_dump(exclude_none=True)


def _check_rules(missed: MissedRule | str, overlap: OverlapRule | str) -> None:
    if missed == "all" and overlap == "cancel":
        raise InvalidInput(
            "Missed runs cannot all be made up for if each run cancels the one before.",
            code="contradicting_rules",
            field="missed",
            next_step="Choose once or skip for missed runs, or queue or skip for overlaps.",
        )


def _require_room(project: Project) -> None:
    if (
        ProjectSchedule.objects.filter(project=project, deleted_at__isnull=True).count()
        < MOST_SCHEDULES
    ):
        return
    raise Conflict(
        f"The project has {MOST_SCHEDULES} schedules, which is the most.",
        code="too_many_schedules",
        next_step="Delete one that is no longer needed.",
    )


def _changed(schedule: ProjectSchedule) -> SlipwayError:
    if not ProjectSchedule.objects.filter(pk=schedule.pk, deleted_at__isnull=True).exists():
        return NotFound()
    return Conflict(
        f"{schedule.name} was changed by somebody else at the same time.",
        code="changed_meanwhile",
        next_step="Look at it, and try again.",
    )


def _spaced(cron: str) -> str:
    return " ".join(cron.split())


def _recorded(schedule: ProjectSchedule) -> dict[str, Any]:
    names = _RECORDED + _RECORDED_WORK
    return {name.removesuffix("_id"): getattr(schedule, name) for name in names}


def _record(verb: str, schedule: ProjectSchedule, **changes: Any) -> None:
    audit.record(
        verb,
        kind="schedule",
        target=schedule,
        label=schedule.name,
        project=schedule.project,
        **changes,
    )
