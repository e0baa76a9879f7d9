"""Starting what schedules have due: times and events become runs, and runs become work.

Everything follows from rows, so it may run at any time, twice, or be killed between two steps. A
time of a schedule becomes its runs in the transaction that moves the schedule on to the next time.
A run starts in the transaction that submits its work. No two runs of a schedule go on at once.
"""

from datetime import datetime, timedelta

import structlog
from django.db import transaction
from django.db.models import Q

from portal.accounts import audit
from portal.accounts.models import User
from portal.accounts.request_origin import Origin, origin_context
from portal.core import clock
from portal.core.errors import SlipwayError
from portal.pipelines.cron import next_time, times_between
from portal.pipelines.dues import MOST_WAITING, Dues, dues_of
from portal.pipelines.events import find_events
from portal.pipelines.models import PipelineRun, ProjectSchedule, ScheduledRun, TriggerEvent
from portal.pipelines.schedule_inputs import start_of, variables_of
from portal.pipelines.services.pipeline_progress import advance_run
from portal.pipelines.services.pipeline_starts import create_run, stop_run
from portal.pipelines.transitions import (
    claim_due,
    claim_event,
    claim_start,
    count_refusal,
    forget_events,
    forget_refusals,
    hold,
    move_run,
    pause,
    skip_waiting,
)
from portal.sweeps.services.sweeps import start_sweep, stop_sweep
from portal.training.services.jobs import submit_job
from portal.training.submitters import reason_not_to_submit
from portal.workloads.lifecycle import ENDS
from portal.workloads.services.cancellation import stop_workload
from slipway.schemas.schedules import ScheduledRunState, ScheduleState
from slipway.schemas.sweeps import SweepIn, SweepState
from slipway.schemas.training import JobIn
from slipway.schemas.triggers import MOST_EVENTS_AN_HOUR

log = structlog.get_logger(__name__)
# A schedule of which everything is refused needs a person.
MOST_REFUSALS = 5
# A run that is older than so many others is not looked at: it can only go on if it was resumed.
_NEWEST = 20
_SERVER_FAULTS = 500
_ACCOUNT_STEP = (
    "Enable the service account and resume the schedule, or resume it and pay for it yourself."
)


def advance_schedule(schedule_id: str) -> None:
    """Do what is due for a schedule. Idempotent; does nothing for an id that is none."""
    schedule = _read(schedule_id)
    if schedule is None:
        return
    with origin_context(Origin(label=f"Schedule {schedule.name}")):
        _take_due(schedule)
        find_events(schedule)
        _take_events(schedule)
        waiting = ScheduledRun.objects.waiting(schedule)
        run = waiting.select_related("requested_by", "event").first()
        if run is None or active_run(schedule) is not None:
            return
        _start(schedule, run)
    run.refresh_from_db(fields=["pipeline_run"])
    if run.pipeline_run_id is not None:
        advance_run(run.pipeline_run_id)


def advance_all() -> int:
    """Advance every schedule that has something due, and return their number."""
    unsettled = ProjectSchedule.objects.unsettled(clock.now())
    ids = list(unsettled.order_by("pk").values_list("pk", flat=True))
    for schedule_id in ids:
        try:
            advance_schedule(schedule_id)
        except Exception:
            log.exception("schedule_not_advanced", schedule=schedule_id)
    return len(ids)


def active_run(schedule: ProjectSchedule) -> ScheduledRun | None:
    """Return the run whose work has not ended, or None."""
    newest = ScheduledRun.objects.filter(schedule=schedule, state=ScheduledRunState.STARTED)
    keys = list(newest.order_by("-due_at").values_list("pk", flat=True)[:_NEWEST])
    open_sweeps = [SweepState.RUNNING, SweepState.PAUSED]
    goes_on = (
        Q(sweep__state__in=open_sweeps)
        # A cancelled run goes on until its jobs have stopped.
        | Q(pipeline_run__in=PipelineRun.objects.unsettled().values("pk"))
        | (Q(job__isnull=False) & ~Q(job__workload__state__in=[state.value for state in ENDS]))
    )
    rows = ScheduledRun.objects.filter(goes_on, pk__in=keys)
    rows = rows.select_related("job__workload__project", "sweep__project", "pipeline_run__project")
    return rows.defer("pipeline_run__spec").first()


def make_way(schedule: ProjectSchedule) -> None:
    """Leave out the runs that wait, and stop the one that goes on, for the next one."""
    skip_waiting(schedule, reason="A later run has replaced it.")
    message = f"Cancelled for the next run of the schedule {schedule.name}."
    run = active_run(schedule)
    if run is not None and run.job is not None:
        stop_workload(workload=run.job.workload, message=message)
    elif run is not None and run.sweep is not None:
        stop_sweep(sweep=run.sweep, message=message)
    elif run is not None and run.pipeline_run is not None:
        stop_run(run=run.pipeline_run, message=message)


def pause_by_itself(schedule: ProjectSchedule, explanation: str, next_step: str) -> None:
    """Pause a schedule that cannot go on, and leave out the runs that wait."""
    with transaction.atomic():
        if not pause(schedule, explanation=explanation, next_step=next_step):
            return
        skip_waiting(schedule, reason="The schedule was paused.")
        forget_events(schedule)
        audit.record(
            "schedule.pause",
            kind="schedule",
            target=schedule,
            label=schedule.name,
            project=schedule.project,
            after={"explanation": schedule.explanation},
        )


def pause_schedules_of(user_id: str, reason: str) -> int:
    """Pause the active schedules for which a service account pays that has ended.

    Returns their number. A schedule that this misses pauses when it is due.
    """
    schedules = ProjectSchedule.objects.filter(
        owner_id=user_id, state=ScheduleState.ACTIVE, deleted_at__isnull=True
    )
    rows = list(schedules.select_related("project__team", "owner").order_by("pk"))
    for schedule in rows:
        pause_by_itself(schedule, reason, _ACCOUNT_STEP)
    return len(rows)


def _read(schedule_id: str) -> ProjectSchedule | None:
    rows = ProjectSchedule.objects.select_related(
        "project__team", "owner", "job__workload", "job__snapshot", "sweep"
    )
    return rows.filter(pk=schedule_id, deleted_at__isnull=True).first()


def _take_due(schedule: ProjectSchedule) -> None:
    """Turn the times that have come into runs, and move the schedule on to its next time."""
    now = clock.now()
    if schedule.next_at is None or schedule.next_at > now:
        return
    times = times_between(schedule.cron, schedule.zone, first=schedule.next_at, until=now)
    dues = dues_of(times, schedule.missed_rule, now)
    next_at = next_time(schedule.cron, schedule.zone, after=now)
    with transaction.atomic():
        if not claim_due(schedule, next_at=next_at):
            return  # Another worker has them, or the schedule was paused or changed.
        if next_at is None:  # What has come is run nevertheless.
            pause_by_itself(
                schedule,
                "No further date matches the cron expression.",
                "Change the expression, then resume the schedule.",
            )
        _add_runs(schedule, dues)


def _take_events(schedule: ProjectSchedule) -> None:
    """Turn the events that have occurred into runs."""
    events = TriggerEvent.objects.filter(schedule=schedule, taken_at__isnull=True)
    for event in events.order_by("occurred_at", "pk")[:MOST_WAITING]:
        with transaction.atomic():
            if not hold(schedule) or not claim_event(event):
                continue
            reason = _reason_to_leave_out(schedule, event)
            if reason:
                _add(schedule, event.occurred_at, skipped=reason, event=event)
            else:
                _add_by_rule(schedule, event.occurred_at, event)


def _reason_to_leave_out(schedule: ProjectSchedule, event: TriggerEvent) -> str:
    """Return why an event starts nothing, whatever the rule for overlaps, or ""."""
    if schedule.pk in event.chain:
        return "A run of this schedule has caused the event, and would start itself again."
    runs = ScheduledRun.objects.filter(schedule=schedule, event__isnull=False)
    recent = runs.filter(created_at__gt=clock.now() - timedelta(hours=1))
    if recent.exclude(state=ScheduledRunState.SKIPPED).count() >= MOST_EVENTS_AN_HOUR:
        return f"{MOST_EVENTS_AN_HOUR} events have started runs within an hour, which is the most."
    return ""


def _add_runs(schedule: ProjectSchedule, dues: Dues) -> None:
    if dues.skipped is not None:
        _add(schedule, dues.skipped.at, skipped=dues.skipped.reason)
    for at in dues.made_up:
        _add(schedule, at)
    if dues.current is None:
        return
    if dues.made_up:  # It comes after those, whatever the rule for overlaps.
        _add(schedule, dues.current)
        return
    _add_by_rule(schedule, dues.current)


def _add_by_rule(
    schedule: ProjectSchedule, at: datetime, event: TriggerEvent | None = None
) -> None:
    """Add a run as the rule for overlaps has it."""
    waiting = ScheduledRun.objects.waiting(schedule).count()
    goes_on = active_run(schedule) is not None
    if schedule.overlap == "skip" and (goes_on or waiting):
        _add(schedule, at, skipped="The run before it had not ended.", event=event)
    elif waiting >= MOST_WAITING and schedule.overlap == "queue":
        _add(schedule, at, skipped=f"{waiting} runs were waiting already.", event=event)
    else:
        if schedule.overlap == "cancel":
            make_way(schedule)
        _add(schedule, at, event=event)


def _add(
    schedule: ProjectSchedule, at: datetime, skipped: str = "", event: TriggerEvent | None = None
) -> None:
    """Add the run of a time or an event, unless that has one."""
    state = ScheduledRunState.SKIPPED if skipped else ScheduledRunState.WAITING
    run = ScheduledRun(schedule=schedule, due_at=at, state=state, reason=skipped, event=event)
    ScheduledRun.objects.bulk_create([run], ignore_conflicts=True)


def _start(schedule: ProjectSchedule, run: ScheduledRun) -> None:
    """Start the work of a run, in the name of the person who pays."""
    payer = run.requested_by or schedule.owner
    reason = reason_not_to_submit(project=schedule.project, user=payer)
    if reason:
        with transaction.atomic():
            move_run(run, ScheduledRunState.REFUSED, reason=reason)
            if run.requested_by is None:
                pause_by_itself(schedule, reason, _payer_step(payer))
        return
    try:
        with transaction.atomic():
            if not _submit(schedule, run):
                transaction.set_rollback(True)
    except SlipwayError as error:
        if error.status >= _SERVER_FAULTS:
            raise  # Tried again by the next call.
        _refuse(schedule, run, error)


def _payer_step(payer: User) -> str:
    """Return the next step of a schedule whose payer can submit nothing."""
    if payer.is_service_account:
        return _ACCOUNT_STEP
    return "Somebody else may resume the schedule, and pays for it from then on."


def _submit(schedule: ProjectSchedule, run: ScheduledRun) -> bool:
    """Start a run unless another worker has, or another run goes on by now."""
    schedule.refresh_from_db(fields=["started"])
    if not claim_start(schedule) or active_run(schedule) is not None:
        return False
    payer, project = run.requested_by or schedule.owner, schedule.project
    variables = variables_of(run)
    if schedule.job is not None:
        job = submit_job(
            project=project,
            by=payer,
            requested=JobIn.model_validate(schedule.request),
            cloned_from=schedule.job,
            variables=variables,
        )
        moved = move_run(run, ScheduledRunState.STARTED, job=job)
    elif schedule.sweep is not None:
        search = SweepIn.model_validate(schedule.request)
        sweep = start_sweep(project=project, by=payer, requested=search, variables=variables)
        moved = move_run(run, ScheduledRunState.STARTED, sweep=sweep)
    else:
        pipeline_run = create_run(
            project=project, by=payer, requested=start_of(schedule, run), variables=variables
        )
        moved = move_run(run, ScheduledRunState.STARTED, pipeline_run=pipeline_run)
    if moved and run.requested_by is None:
        forget_refusals(schedule)
    return moved


def _refuse(schedule: ProjectSchedule, run: ScheduledRun, error: SlipwayError) -> None:
    """Record a run that was refused. Too many in a row pause the schedule."""
    text = f"{error.message} {error.next_step or ''}".strip()
    with transaction.atomic():
        if not move_run(run, ScheduledRunState.REFUSED, reason=text):
            return
        if run.requested_by is not None:
            return
        explanation = f"The last run was refused: {error.message}"
        count = count_refusal(schedule, explanation=explanation, next_step=error.next_step or "")
        if count >= MOST_REFUSALS:
            pause_by_itself(
                schedule,
                f"{count} runs in a row were refused. The last of them: {error.message}",
                f"{(error.next_step or 'Fix this').rstrip('.')}, then resume the schedule.",
            )
