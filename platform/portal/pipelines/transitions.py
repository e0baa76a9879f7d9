"""Moving schedules and their runs from state to state: the only code that writes their `state`.

A move is one guarded UPDATE: the loser of a race changes nothing and gets False.
"""

from datetime import datetime
from typing import Any

from django.db.models import F, Q

from portal.accounts.models import User
from portal.core import clock
from portal.pipelines.lifecycle import run_sources, sources
from portal.pipelines.models import ProjectSchedule, ScheduledRun, TriggerEvent
from slipway.schemas.schedules import ScheduledRunState, ScheduleState
from slipway.schemas.truncation import shorten

_NO_GUARD = Q()


def pause(
    schedule: ProjectSchedule, *, explanation: str, next_step: str = "", by: User | None = None
) -> bool:
    """Let a schedule start nothing until it is resumed. Returns whether it was active till then."""
    return _move(
        schedule,
        ScheduleState.PAUSED,
        explanation=shorten(explanation, 500),
        next_step=shorten(next_step, 300),
        paused_by=by,
        explained_at=clock.now(),
        next_at=None,
    )


def resume(schedule: ProjectSchedule, *, next_at: datetime | None, owner: User) -> bool:
    """Let a paused schedule start its runs again.

    Returns whether it was paused till then, with the payer with which it was read.
    """
    return _move(
        schedule,
        ScheduleState.ACTIVE,
        Q(owner=schedule.owner_id),
        explanation="",
        next_step="",
        paused_by=None,
        explained_at=None,
        next_at=next_at,
        events_from=clock.now() if schedule.trigger else None,
        owner=owner,
        refusals=0,
    )


def change(schedule: ProjectSchedule, **changes: Any) -> bool:
    """Change a schedule that exists, and has the state and the payer with which it was read.

    Returns whether it had. Else a service account could go on to pay for what somebody else has
    put in at that moment.
    """
    here = ProjectSchedule.objects.filter(
        pk=schedule.pk, state=schedule.state, owner=schedule.owner_id, deleted_at__isnull=True
    )
    return bool(here.update(**changes))


def delete(schedule: ProjectSchedule) -> bool:
    """End a schedule for good. Returns whether it existed till then."""
    here = ProjectSchedule.objects.filter(pk=schedule.pk, deleted_at__isnull=True)
    return bool(here.update(state=ScheduleState.PAUSED, next_at=None, deleted_at=clock.now()))


def claim_due(schedule: ProjectSchedule, *, next_at: datetime | None) -> bool:
    """Move the time of an active schedule on. Returns whether nobody else has."""
    here = ProjectSchedule.objects.filter(
        pk=schedule.pk, state=ScheduleState.ACTIVE, next_at=schedule.next_at
    )
    if next_at is None:
        return bool(here.update(next_at=F("next_at")))
    return bool(here.update(next_at=next_at))


def claim_start(schedule: ProjectSchedule) -> bool:
    """Hold the right to start a run until the transaction ends. Returns whether there is one.

    The UPDATE makes others wait that would start a run as well, and they get False.
    """
    here = ProjectSchedule.objects.filter(
        pk=schedule.pk, started=schedule.started, deleted_at__isnull=True
    )
    return bool(here.update(started=schedule.started + 1))


def claim_event(event: TriggerEvent) -> bool:
    """Take an event, which becomes a run. Returns whether nobody else has."""
    here = TriggerEvent.objects.filter(pk=event.pk, taken_at__isnull=True)
    return bool(here.update(taken_at=clock.now()))


def forget_events(schedule: ProjectSchedule) -> int:
    """Let the events that have not become runs yet be without effect. Returns their number."""
    fresh = TriggerEvent.objects.filter(schedule=schedule, taken_at__isnull=True)
    return fresh.update(taken_at=clock.now())


def move_events_from(schedule: ProjectSchedule, *, to: datetime) -> bool:
    """Move on the time from which events are looked for, in an active schedule.

    Returns whether nobody else has, nor has changed its trigger.
    """
    here = ProjectSchedule.objects.filter(
        pk=schedule.pk, events_from=schedule.events_from, state=ScheduleState.ACTIVE
    )
    return bool(here.update(events_from=to))


def hold(schedule: ProjectSchedule) -> bool:
    """Make others that start or add runs wait until the transaction ends.

    Returns whether the schedule exists.
    """
    here = ProjectSchedule.objects.filter(pk=schedule.pk, deleted_at__isnull=True)
    return bool(here.update(started=F("started")))


def count_refusal(schedule: ProjectSchedule, *, explanation: str, next_step: str) -> int:
    """Count a refused run of an active schedule. Returns how many there were in a row."""
    here = ProjectSchedule.objects.filter(pk=schedule.pk, state=ScheduleState.ACTIVE)
    here.update(
        refusals=F("refusals") + 1,
        explanation=shorten(explanation, 500),
        next_step=shorten(next_step, 300),
        explained_at=clock.now(),
    )
    schedule.refresh_from_db(fields=["refusals"])
    return schedule.refusals


def forget_refusals(schedule: ProjectSchedule) -> None:
    """Count the refused runs of an active schedule from 0 again."""
    here = ProjectSchedule.objects.filter(
        pk=schedule.pk, state=ScheduleState.ACTIVE, refusals__gt=0
    )
    here.update(refusals=0, explanation="", next_step="", explained_at=None)


def move_run(run: ScheduledRun, target: ScheduledRunState, **changes: Any) -> bool:
    """Move a run to `target` if its state allows it. Returns whether it did."""
    if "reason" in changes:
        changes["reason"] = shorten(str(changes["reason"]), 500)
    here = ScheduledRun.objects.filter(pk=run.pk, state__in=run_sources(target))
    return bool(here.update(state=target, **changes))


def skip_waiting(schedule: ProjectSchedule, *, reason: str) -> int:
    """Leave out the runs of the schedule that wait. Returns their number."""
    waiting = ScheduledRun.objects.waiting(schedule).filter(requested_by__isnull=True)
    return waiting.update(state=ScheduledRunState.SKIPPED, reason=shorten(reason, 500))


def skip_all_waiting(schedule: ProjectSchedule, *, reason: str) -> int:
    """Leave out all runs that wait, those that people asked for too. Returns their number."""
    waiting = ScheduledRun.objects.waiting(schedule)
    return waiting.update(state=ScheduledRunState.SKIPPED, reason=shorten(reason, 500))


def _move(
    schedule: ProjectSchedule, target: ScheduleState, guard: Q = _NO_GUARD, **changes: Any
) -> bool:
    here = ProjectSchedule.objects.filter(
        guard, pk=schedule.pk, state__in=sources(target), deleted_at__isnull=True
    )
    changes["state"] = target
    if not here.update(**changes):
        return False
    for name, value in changes.items():
        setattr(schedule, name, value)
    return True
