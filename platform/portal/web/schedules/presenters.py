"""Presenters of schedules: state, rows of the list, rows of runs."""

from dataclasses import dataclass
from datetime import datetime

from django.urls import reverse

from portal.core import clock
from portal.pipelines.cron import next_times, zone_of
from portal.pipelines.models import ProjectSchedule, ScheduledRun
from slipway.schemas.schedules import (
    DEFAULT_PREVIEWED,
    ScheduledRunState,
    ScheduleState,
)
from slipway.schemas.sweeps import SweepState
from slipway.schemas.workloads import WorkloadState

_TONES: dict[str, str] = {
    ScheduleState.ACTIVE: "ok",
    ScheduleState.PAUSED: "warn",
    ScheduledRunState.REFUSED: "bad",
    WorkloadState.SUCCEEDED: "ok",
    WorkloadState.FAILED: "bad",
    SweepState.FINISHED: "ok",
}
MISSED_TEXTS = {"once": "one run for all", "skip": "skipped", "all": "all are run"}
OVERLAP_TEXTS = {
    "skip": "the new run is skipped",
    "queue": "the new run waits",
    "cancel": "the old run is cancelled",
}
_GOES_ON = frozenset({WorkloadState.RUNNING.value, WorkloadState.STARTING.value})


@dataclass(frozen=True)
class ScheduleStatus:
    """Status of a schedule or of a run, as the part that shows states reads it."""

    label: str
    tone: str
    is_active: bool

    @classmethod
    def of(cls, state: str) -> "ScheduleStatus":
        """Return the status of a state of a schedule, of a run, or of what it started."""
        return cls(str(state), _TONES.get(state, ""), state in _GOES_ON)


@dataclass(frozen=True)
class ScheduledRunRow:
    """A run in the table. `url` is the page of what it has started, "" without it."""

    run: ScheduledRun
    status: ScheduleStatus
    due: str
    url: str
    label: str

    @classmethod
    def of(cls, run: ScheduledRun, schedule: ProjectSchedule) -> "ScheduledRunRow":
        """Return the row of a run."""
        slug, url, label = schedule.project.slug, "", ""
        if run.job_id is not None:
            url, label = reverse("project_job", args=[slug, run.job_id]), "Job"
        elif run.sweep is not None:
            url, label = reverse("project_sweep", args=[slug, run.sweep.pk]), "Sweep"
        elif run.pipeline_run is not None:
            url = reverse("project_pipeline_run", args=[slug, run.pipeline_run.pk])
            label = "Pipeline"
        due = local_text(run.due_at, schedule.zone)
        return cls(run, ScheduleStatus.of(run.outcome or run.state), due, url, label)


@dataclass(frozen=True)
class ScheduleRow:
    """A schedule in the list, with its last run."""

    schedule: ProjectSchedule
    status: ScheduleStatus
    next: str
    last: ScheduledRunRow | None

    @classmethod
    def of(cls, schedule: ProjectSchedule, last: ScheduledRun | None) -> "ScheduleRow":
        """Return the row of a schedule."""
        upcoming = schedule.next_at and local_text(schedule.next_at, schedule.zone)
        row = None if last is None else ScheduledRunRow.of(last, schedule)
        return cls(schedule, ScheduleStatus.of(schedule.state), upcoming or "", row)


def local_text(at: datetime, zone: str) -> str:
    """Return a time in a time zone: `Mon 30 Nov 2026, 02:00 CET`."""
    return at.astimezone(zone_of(zone)).strftime("%a %-d %b %Y, %H:%M %Z")


def upcoming_texts(schedule: ProjectSchedule) -> list[str]:
    """Return the next times of a schedule that is active."""
    if schedule.status != ScheduleState.ACTIVE or not schedule.cron:
        return []
    after, count = clock.now(), DEFAULT_PREVIEWED
    times = next_times(schedule.cron, schedule.zone, after=after, count=count)
    return [local_text(at, schedule.zone) for at in times]
