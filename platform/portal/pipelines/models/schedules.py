"""Schedules, events that start them, and the runs that they have started or left out."""

import operator
from datetime import datetime
from functools import reduce
from typing import Any, ClassVar, cast, get_args

from django.db import models
from django.db.models import Q

from portal.accounts.models import Project, User
from portal.accounts.principal import Principal
from portal.core.models import IdField, Row
from portal.sweeps.models import Sweep
from portal.training.models import Job
from slipway.schemas.schedules import MissedRule, OverlapRule, ScheduledRunState, ScheduleState
from slipway.schemas.triggers import TriggerIn, trigger_text

_STATES = [state.value for state in ScheduleState]
_RUN_STATES = [state.value for state in ScheduledRunState]
_STARTED_NOTHING = [ScheduledRunState.SKIPPED.value, ScheduledRunState.REFUSED.value]
_EXISTS = Q(deleted_at__isnull=True)
_IS_ACTIVE = Q(state=ScheduleState.ACTIVE)


def _at_most_one(*names: str) -> Q:
    """Return the condition that at most one of some columns has a value."""
    nothing = {f"{name}__isnull": True for name in names}
    rests = [{key: True for key in nothing if key != f"{name}__isnull"} for name in names]
    return reduce(operator.or_, (Q(**rest) for rest in rests))


class ProjectScheduleQuerySet(models.QuerySet["ProjectSchedule"]):
    """Queries of schedules."""

    def of_project(self, project: Project) -> "ProjectScheduleQuerySet":
        """Schedules of one project, with what every answer about them needs."""
        rows = self.filter(_EXISTS, project=project)
        rows = rows.select_related("project__team", "owner", "job__workload", "sweep")
        return rows.select_related("pipeline_run").defer("pipeline_run__spec")

    def visible_to(self, principal: Principal) -> "ProjectScheduleQuerySet":
        """Schedules of the projects in sight that are not archived."""
        return self.filter(_EXISTS, project__in=principal.projects().live())

    def unsettled(self, now: datetime) -> "ProjectScheduleQuerySet":
        """Schedules that are due, wait for events, or have runs that wait."""
        waiting = ScheduledRun.objects.filter(state=ScheduledRunState.WAITING)
        is_due = _IS_ACTIVE & (Q(next_at__lte=now) | Q(trigger__isnull=False))
        return self.filter(_EXISTS, is_due | Q(pk__in=waiting.values("schedule")))


class ProjectSchedule(Row):
    """A job, a sweep or a pipeline that starts at the times of a cron expression or for events.

    `request` is the submission that it repeats: `JobIn` or `SweepIn`, settled when it was saved, or
    `PipelineRunIn`. `job`, `sweep` or `pipeline_run` is the one that this was read from. A schedule
    without any of them has its pipeline from its request alone. `owner` pays. `next_at` is the time
    that comes next, None while it is paused. `explanation` says why it is paused, or why its last
    run was refused, since `explained_at`. `paused_by` is None if it has paused itself. `started`
    counts the runs that have started, `refusals` those refused in a row since the last one of them.

    `trigger` (`TriggerIn`) has the events that start it instead of times, and `cron` is then empty.
    Events before `events_from` are done with. `hook_digest` is the hash of the secret in the URL of
    its webhook, "" without one.
    """

    id = IdField("sch")
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+")
    owner = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    name = models.CharField(max_length=48)
    cron = models.CharField(max_length=100)
    zone = models.CharField(max_length=64)
    trigger = models.JSONField(null=True, blank=True)
    events_from = models.DateTimeField(null=True, blank=True)
    hook_digest = models.CharField(max_length=64, blank=True, default="", db_default="")
    hook_created_at = models.DateTimeField(null=True, blank=True)
    job = models.ForeignKey(Job, null=True, blank=True, on_delete=models.PROTECT, related_name="+")
    sweep = models.ForeignKey(
        Sweep, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    pipeline_run = models.ForeignKey(
        "PipelineRun", null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    request = models.JSONField()
    missed = models.CharField(max_length=8)
    overlap = models.CharField(max_length=8)
    state = models.CharField(max_length=8, default=ScheduleState.ACTIVE)
    explanation = models.CharField(max_length=500, blank=True)
    next_step = models.CharField(max_length=300, blank=True)
    paused_by = models.ForeignKey(
        User, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    explained_at = models.DateTimeField(null=True, blank=True)
    next_at = models.DateTimeField(null=True, blank=True)
    started = models.PositiveIntegerField(default=0)
    refusals = models.PositiveSmallIntegerField(default=0)
    deleted_at = models.DateTimeField(null=True, blank=True)

    objects: ClassVar[ProjectScheduleQuerySet] = ProjectScheduleQuerySet.as_manager()  # type: ignore[assignment]

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(
                fields=["project", "name"], condition=_EXISTS, name="schedule_once_a_name"
            ),
            models.CheckConstraint(condition=Q(state__in=_STATES), name="schedule_known_state"),
            models.CheckConstraint(
                condition=Q(missed__in=get_args(MissedRule)) & Q(overlap__in=get_args(OverlapRule)),
                name="schedule_known_rules",
            ),
            models.CheckConstraint(
                condition=_at_most_one("job", "sweep", "pipeline_run"), name="schedule_one_template"
            ),
            models.CheckConstraint(
                condition=(_IS_ACTIVE & Q(trigger__isnull=True)) ^ Q(next_at__isnull=True),
                name="schedule_active_is_due",
            ),
            models.CheckConstraint(
                condition=Q(cron="") ^ Q(trigger__isnull=True), name="schedule_cron_or_trigger"
            ),
            models.CheckConstraint(
                condition=Q(trigger__isnull=True) | Q(events_from__isnull=False),
                name="schedule_trigger_has_start",
            ),
            models.UniqueConstraint(
                fields=["hook_digest"], condition=~Q(hook_digest=""), name="schedule_once_a_hook"
            ),
            models.CheckConstraint(
                condition=_EXISTS | ~_IS_ACTIVE, name="schedule_deleted_is_not_active"
            ),
        ]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["project", "-id"], name="schedule_by_project"),
            models.Index(fields=["next_at"], condition=_IS_ACTIVE, name="schedule_due"),
            models.Index(
                fields=["id"],
                condition=_IS_ACTIVE & Q(trigger__isnull=False),
                name="schedule_triggered",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def status(self) -> ScheduleState:
        """The state, as a value of the enum."""
        return ScheduleState(self.state)

    @property
    def missed_rule(self) -> MissedRule:
        """The rule for missed runs, as a value of its type."""
        return cast("MissedRule", self.missed)

    @property
    def event(self) -> str:
        """The kind of event that starts it, "" for times."""
        return str(self.trigger["event"]) if self.trigger else ""

    @property
    def trigger_text(self) -> str:
        """The trigger in words, "" without one."""
        return trigger_text(TriggerIn.model_validate(self.trigger)) if self.trigger else ""

    @property
    def starts_pipelines(self) -> bool:
        """Return True if it starts runs of a pipeline."""
        return self.job_id is None and self.sweep_id is None

    @property
    def pipeline(self) -> str:
        """The name of the pipeline that it starts, "" for one of a job or a sweep."""
        return str(self.request["pipeline"]["name"]) if self.starts_pipelines else ""

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters of the pipeline that it starts."""
        return dict(self.request.get("parameters", {})) if self.starts_pipelines else {}

    @property
    def script(self) -> str:
        """The script that it runs, "" for a pipeline."""
        return str(self._job_request.get("script", ""))

    @property
    def tier(self) -> str:
        """The hardware tier that it runs on, "" for a pipeline."""
        return str(self._job_request.get("tier", ""))

    @property
    def _job_request(self) -> dict[str, object]:
        if self.starts_pipelines:
            return {}
        request: dict[str, object] = self.request if self.job_id else self.request["job"]
        return request


class ScheduledRunQuerySet(models.QuerySet["ScheduledRun"]):
    """Queries of runs of schedules."""

    def waiting(self, schedule: ProjectSchedule) -> "ScheduledRunQuerySet":
        """Runs of a schedule that wait for the one before, the earliest first."""
        rows = self.filter(schedule=schedule, state=ScheduledRunState.WAITING)
        return rows.order_by("due_at")

    def started_nothing(self, *, before: datetime) -> "ScheduledRunQuerySet":
        """Runs that were due before a time and were skipped or refused, the earliest first."""
        return self.filter(state__in=_STARTED_NOTHING, due_at__lt=before).order_by("due_at")

    def with_outcomes(self) -> "ScheduledRunQuerySet":
        """Runs with what every answer about them needs."""
        rows = self.select_related(
            "job__workload", "sweep", "pipeline_run", "requested_by", "event"
        )
        return rows.defer("pipeline_run__spec")


class TriggerEvent(Row):
    """An event for a schedule, once for each `key`, until it becomes a run at `taken_at`.

    `details` are what jobs and parameters may read. `chain` are the ids of the schedules whose runs
    have led to it, the last one first.
    """

    id = IdField("tev")
    schedule = models.ForeignKey(ProjectSchedule, on_delete=models.PROTECT, related_name="+")
    key = models.CharField(max_length=100)
    occurred_at = models.DateTimeField()
    details = models.JSONField()
    chain = models.JSONField(default=list)
    taken_at = models.DateTimeField(null=True, blank=True)

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["schedule", "key"], name="trigger_event_once"),
        ]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(
                fields=["schedule", "occurred_at"],
                condition=Q(taken_at__isnull=True),
                name="trigger_event_new",
            ),
            models.Index(fields=["taken_at"], name="trigger_event_taken"),
        ]

    def __str__(self) -> str:
        return self.text

    @property
    def text(self) -> str:
        """The event in a few words: what it is about."""
        if "labels" in self.details:
            return f"{self.details['labels']} new labels"
        names = ("reference", "uri", "reason")
        return next((str(self.details[name]) for name in names if name in self.details), "webhook")


class ScheduledRun(Row):
    """A time or an event of a schedule, and what came of it: work, or a reason why there is none.

    `requested_by` is the person who asked for a run beside the schedule, and who pays for it.
    """

    id = IdField("srn")
    schedule = models.ForeignKey(ProjectSchedule, on_delete=models.PROTECT, related_name="runs")
    due_at = models.DateTimeField()
    state = models.CharField(max_length=8, default=ScheduledRunState.WAITING)
    reason = models.CharField(max_length=500, blank=True)
    job = models.OneToOneField(
        Job, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    sweep = models.OneToOneField(
        Sweep, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    pipeline_run = models.OneToOneField(
        "PipelineRun", null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    requested_by = models.ForeignKey(
        User, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    event = models.OneToOneField(
        TriggerEvent, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )

    objects: ClassVar[ScheduledRunQuerySet] = ScheduledRunQuerySet.as_manager()  # type: ignore[assignment]

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(
                fields=["schedule", "due_at"],
                condition=Q(event__isnull=True),
                name="scheduled_run_once",
            ),
            models.CheckConstraint(
                condition=Q(state__in=_RUN_STATES), name="scheduled_run_known_state"
            ),
            models.CheckConstraint(
                condition=_at_most_one("job", "sweep", "pipeline_run"),
                name="scheduled_run_one_outcome",
            ),
            models.CheckConstraint(
                condition=Q(state=ScheduledRunState.STARTED)
                ^ Q(job__isnull=True, sweep__isnull=True, pipeline_run__isnull=True),
                name="scheduled_run_started_with_work",
            ),
        ]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(
                fields=["schedule", "due_at"],
                condition=Q(state=ScheduledRunState.WAITING),
                name="scheduled_run_waiting",
            ),
            models.Index(
                fields=["schedule", "-due_at"],
                condition=Q(state=ScheduledRunState.STARTED),
                name="scheduled_run_started",
            ),
            models.Index(
                fields=["due_at"],
                condition=Q(state__in=_STARTED_NOTHING),
                name="scheduled_run_nothing",
            ),
        ]

    @property
    def status(self) -> ScheduledRunState:
        """The state, as a value of the enum."""
        return ScheduledRunState(self.state)

    @property
    def outcome(self) -> str | None:
        """The state of what was started, or None."""
        if self.job is not None:
            return str(self.job.workload.state)
        work = self.sweep or self.pipeline_run
        return None if work is None else str(work.state)
