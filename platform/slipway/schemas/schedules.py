"""Wire schemas of schedules, which start jobs, sweeps and pipelines at times or for events.

Under `/api/v1`. `{schedule}` is its name, which is unique in the project.

GET    projects/{project}/schedules                     PageOf[ScheduleOut]
POST   projects/{project}/schedules                     ScheduleIn → ScheduleOut (201)
POST   projects/{project}/schedules/preview             PreviewIn → SchedulePreview
GET    projects/{project}/schedules/{schedule}          ScheduleOut
PATCH  projects/{project}/schedules/{schedule}          ScheduleEdit → ScheduleOut
DELETE projects/{project}/schedules/{schedule}          what it has started goes on
POST   projects/{project}/schedules/{schedule}/pause    → ScheduleOut
POST   projects/{project}/schedules/{schedule}/resume   → ScheduleOut
POST   projects/{project}/schedules/{schedule}/run      → ScheduledRunOut (201)
GET    projects/{project}/schedules/{schedule}/runs     PageOf[ScheduledRunOut]
POST   projects/{project}/schedules/{schedule}/hook     → HookOut (201): a new secret URL
POST   hooks/{secret}                                   any JSON object → HookAnswer (202)
"""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from slipway.schemas.base import AnswerSchema, JsonObject, Line, RequestSchema, Slug, Whole
from slipway.schemas.pipelines import PipelineRunIn
from slipway.schemas.triggers import TriggerIn, TriggerOut

MOST_SCHEDULES = 200
MOST_PREVIEWED = 20
DEFAULT_PREVIEWED = 5
DEFAULT_ZONE = "UTC"

Cron = Annotated[Line, Field(min_length=1, max_length=100)]
Zone = Annotated[Line, Field(min_length=1, max_length=64)]
WorkloadId = Annotated[Line, Field(min_length=1, max_length=32)]
MissedRule = Literal["skip", "once", "all"]
OverlapRule = Literal["skip", "queue", "cancel"]
DEFAULT_MISSED: MissedRule = "once"
DEFAULT_OVERLAP: OverlapRule = "skip"
# The caller, where a schedule names the one who pays for what it starts.
RUN_AS_ME = "me"
Parameters = Annotated[JsonObject, Field(max_length=100)]
_TEMPLATES = ("job", "sweep", "pipeline", "pipeline_run")
_CRON_OR_TRIGGER = "name either cron or trigger: the times or the events that start the schedule"
_ONE_TEMPLATE = "name one of job, sweep, pipeline and pipeline_run: what the schedule starts"


class ScheduleState(StrEnum):
    """State of a schedule."""

    ACTIVE = "active"
    PAUSED = "paused"


class ScheduledRunState(StrEnum):
    """State of a run of a schedule.

    `waiting` until the run before it has ended, `started` once it has a job, a sweep or a run of a
    pipeline, `skipped` by a rule of the schedule, `refused` if that could not be started.
    """

    WAITING = "waiting"
    STARTED = "started"
    SKIPPED = "skipped"
    REFUSED = "refused"


class ScheduleIn(RequestSchema):
    """A schedule to create. It repeats the job, sweep or run of a pipeline of that id.

    `pipeline` is a pipeline that has not run yet, with its code. `parameters` replace those of the
    pipeline or of the run. It starts at the times of `cron`, or for the events of `trigger`.

    `cron` has five fields: minute, hour, day of the month, month, day of the week. `zone` is a name
    of the IANA time zone database, such as `Europe/Berlin`. `missed` is what happens with the times
    that passed while Slipway was down: `skip` them, run `once` for all of them, or run `all`, the
    last 100 at most. `overlap` is what happens when the run before still goes on: `skip` the new
    one, `queue` it, or `cancel` the old one.

    The caller pays for what it starts. With `run_as`, the name of a service account of the project,
    that account does, and everything runs with its role. Only maintainers can name one.
    """

    name: Slug
    run_as: Slug | None = None
    cron: Cron | None = None
    trigger: TriggerIn | None = None
    zone: Zone = DEFAULT_ZONE
    job: WorkloadId | None = None
    sweep: WorkloadId | None = None
    pipeline: PipelineRunIn | None = None
    pipeline_run: WorkloadId | None = None
    parameters: Parameters = {}
    missed: MissedRule = DEFAULT_MISSED
    overlap: OverlapRule = DEFAULT_OVERLAP

    @model_validator(mode="after")
    def _one_template(self) -> Self:
        if sum(getattr(self, name) is not None for name in _TEMPLATES) != 1:
            raise ValueError(_ONE_TEMPLATE)
        if (self.cron is None) == (self.trigger is None):
            raise ValueError(_CRON_OR_TRIGGER)
        return self


class ScheduleEdit(RequestSchema):
    """Changes to a schedule. Omitted fields stay as they are, as do omitted `parameters`.

    The caller pays from then on for what the schedule starts, or the service account that `run_as`
    names; `me` is the caller. Without it, a service account that paid goes on to pay if the caller
    may use it.
    """

    run_as: Slug | None = None
    cron: Cron | None = None
    trigger: TriggerIn | None = None
    zone: Zone | None = None
    job: WorkloadId | None = None
    sweep: WorkloadId | None = None
    pipeline: PipelineRunIn | None = None
    pipeline_run: WorkloadId | None = None
    parameters: Parameters | None = None
    missed: MissedRule | None = None
    overlap: OverlapRule | None = None

    @model_validator(mode="after")
    def _one_template(self) -> Self:
        if sum(getattr(self, name) is not None for name in _TEMPLATES) > 1:
            raise ValueError(_ONE_TEMPLATE)
        if self.cron is not None and self.trigger is not None:
            raise ValueError(_CRON_OR_TRIGGER)
        return self

    @property
    def names_pipeline(self) -> bool:
        """Return True if the schedule is to start a pipeline."""
        return self.pipeline is not None or self.pipeline_run is not None

    @property
    def names_template(self) -> bool:
        """Return True if the schedule is to start something else."""
        return any(getattr(self, name) is not None for name in _TEMPLATES)


class PreviewIn(RequestSchema):
    """A cron expression and a time zone, to see its next `count` times."""

    cron: Cron
    zone: Zone = DEFAULT_ZONE
    count: Whole = Field(default=DEFAULT_PREVIEWED, ge=1, le=MOST_PREVIEWED)


class SchedulePreview(AnswerSchema):
    """The next times of a cron expression, with the offset of its time zone."""

    cron: str
    zone: str
    times: list[datetime]


class ScheduledRunOut(AnswerSchema):
    """A run of a schedule.

    `due_at` is the time of the schedule that it is for. `job`, `sweep` or `pipeline_run` is what
    was started, and `outcome` the state of that. `requested_by` is the person who asked for a run
    beside the schedule, and who pays for it. `event` is what has started it, if a trigger did.
    """

    id: str
    due_at: datetime
    state: ScheduledRunState
    reason: str = ""
    job: str | None = None
    sweep: str | None = None
    pipeline_run: str | None = None
    outcome: str | None = None
    requested_by: str | None = None
    event: dict[str, Any] | None = None
    created_at: datetime


class ScheduleOut(AnswerSchema):
    """A schedule. `owner` pays for what it starts.

    `cron` is empty for one with a `trigger`. `hook_created_at` is when the URL of its webhook was
    created, null without one.
    `job` or `sweep` is the one that it repeats, with `script` and `tier`. `pipeline` is the name of
    the pipeline that it starts with `parameters`, and `pipeline_run` the run that it was read from.
    `explanation` says why it is paused. `next_at` is null while it is paused. `next_times` has the
    offset of its time zone. Lists leave it out.
    """

    id: str
    project: str
    name: str
    state: ScheduleState
    explanation: str = ""
    next_step: str | None = None
    cron: str
    trigger: TriggerOut | None = None
    hook_created_at: datetime | None = None
    zone: str
    job: str | None = None
    sweep: str | None = None
    pipeline: str | None = None
    pipeline_run: str | None = None
    parameters: dict[str, Any] = {}
    script: str = ""
    tier: str = ""
    missed: MissedRule
    overlap: OverlapRule
    owner: str
    next_at: datetime | None = None
    next_times: list[datetime] = []
    last_run: ScheduledRunOut | None = None
    created_at: datetime


class HookOut(AnswerSchema):
    """The secret URL of a webhook. It is shown once; a new one ends the old one."""

    url: str


class HookAnswer(AnswerSchema):
    """The event that was recorded for a call of a webhook."""

    event: str
