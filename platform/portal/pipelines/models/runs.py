"""Runs of pipelines with their steps."""

from typing import ClassVar

from django.db import models
from django.db.models import Q

from portal.accounts.models import Project, User
from portal.accounts.principal import Principal
from portal.core.models import IdField, Row
from portal.sweeps.models import Sweep
from portal.training.models import Job, Snapshot
from slipway.schemas.pipelines import PipelineIn, PipelineRunState, StepState

_PIPELINE_STATES = [state.value for state in PipelineRunState]
_STEP_STATES = [state.value for state in StepState]


class PipelineRunQuerySet(models.QuerySet["PipelineRun"]):
    """Queries of runs of pipelines."""

    def of_project(self, project: Project) -> "PipelineRunQuerySet":
        """Runs of one project, with what every answer about them needs."""
        rows = self.filter(project=project).select_related("project__team", "owner", "snapshot")
        return rows.defer("snapshot__marks")

    def visible_to(self, principal: Principal) -> "PipelineRunQuerySet":
        """Runs of the projects in sight that are not archived."""
        return self.filter(project__in=principal.projects().live())

    def unsettled(self) -> "PipelineRunQuerySet":
        """Runs that go on, or that have ended before their steps."""
        is_open = Q(state__in=[StepState.WAITING, StepState.RUNNING, StepState.APPROVAL])
        with_open = StepRun.objects.filter(is_open)
        return self.filter(Q(state=PipelineRunState.RUNNING) | Q(pk__in=with_open.values("run")))


class PipelineRun(Row):
    """A run of a pipeline: `spec` (`PipelineIn`) with values for its parameters, and its code.

    `variables` are environment variables of its schedule, which the jobs of all steps have.
    `owner` pays for what it starts. `attempt` counts how often it was started, with resumptions.
    `started` grows with each step that starts, which holds the row meanwhile.
    """

    id = IdField("ppr")
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+")
    owner = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    name = models.CharField(max_length=48)
    spec = models.JSONField()
    parameters = models.JSONField(default=dict)
    snapshot = models.ForeignKey(
        Snapshot, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    git = models.JSONField(null=True, blank=True)
    force = models.BooleanField(default=False)
    variables = models.JSONField(null=True, blank=True)
    state = models.CharField(max_length=16, default=PipelineRunState.RUNNING)
    explanation = models.CharField(max_length=500, blank=True)
    next_step = models.CharField(max_length=300, blank=True)
    attempt = models.PositiveSmallIntegerField(default=1)
    started = models.PositiveIntegerField(default=0)
    ended_at = models.DateTimeField(null=True, blank=True)

    objects: ClassVar[PipelineRunQuerySet] = PipelineRunQuerySet.as_manager()  # type: ignore[assignment]

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.CheckConstraint(
                condition=Q(state__in=_PIPELINE_STATES), name="pipeline_run_known_state"
            ),
            models.CheckConstraint(
                condition=Q(state=PipelineRunState.RUNNING) ^ Q(ended_at__isnull=False),
                name="pipeline_run_ended_at",
            ),
        ]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["project", "-id"], name="pipeline_run_by_project"),
            models.Index(
                fields=["id"],
                condition=Q(state=PipelineRunState.RUNNING),
                name="pipeline_run_open",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def status(self) -> PipelineRunState:
        """The state, as a value of the enum."""
        return PipelineRunState(self.state)

    @property
    def pipeline(self) -> PipelineIn:
        """The pipeline, as it was started."""
        return PipelineIn.model_validate(self.spec)


class StepRun(Row):
    """A step of a run, or with an `item` number that item of a fan-out, whose value is `value`.

    `value` is also the model of a registration, the id of the move of a promotion, and the role
    that decides about an approval.
    `request` is the settled submission of its jobs (`JobIn`), with references. `digest` stands for
    all that its outputs depend on. `failures` counts its jobs that failed since the run was started
    or resumed, `attempt` all of them, and `job` is the newest; of a sweep, `attempt` and `sweep`
    are. `reused_from` has made its outputs.
    """

    id = IdField("psr")
    run = models.ForeignKey(PipelineRun, on_delete=models.CASCADE, related_name="steps")
    step = models.CharField(max_length=48)
    item = models.PositiveSmallIntegerField(null=True, blank=True)
    value = models.JSONField(null=True, blank=True)
    kind = models.CharField(max_length=16)
    request = models.JSONField(null=True, blank=True)
    state = models.CharField(max_length=16, default=StepState.WAITING)
    explanation = models.CharField(max_length=1000, blank=True)
    next_step = models.CharField(max_length=300, blank=True)
    digest = models.CharField(max_length=64, blank=True)
    outputs = models.JSONField(default=dict)
    attempt = models.PositiveSmallIntegerField(default=0)
    failures = models.PositiveSmallIntegerField(default=0)
    job = models.OneToOneField(
        Job, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    sweep = models.OneToOneField(
        Sweep, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    reused_from = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    decided_by = models.ForeignKey(
        User, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(
                fields=["run", "step"], condition=Q(item__isnull=True), name="step_run_once"
            ),
            models.UniqueConstraint(
                fields=["run", "step", "item"],
                condition=Q(item__isnull=False),
                name="step_run_once_an_item",
            ),
            models.CheckConstraint(
                condition=Q(state__in=_STEP_STATES), name="step_run_known_state"
            ),
        ]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(
                fields=["digest"],
                condition=Q(state=StepState.SUCCEEDED),
                name="step_run_by_digest",
            ),
            models.Index(
                fields=["run"],
                condition=Q(state__in=["waiting", "running", "approval"]),
                name="step_run_open",
            ),
        ]

    def __str__(self) -> str:
        return self.step if self.item is None else f"{self.step} {self.item + 1}"

    @property
    def status(self) -> StepState:
        """The state, as a value of the enum."""
        return StepState(self.state)


class StepJob(Row):
    """A job of a step. All of them count in its cost. `reported` are the outputs it has sent."""

    id = IdField("psj")
    step_run = models.ForeignKey(StepRun, on_delete=models.CASCADE, related_name="jobs")
    attempt = models.PositiveSmallIntegerField()
    job = models.OneToOneField(Job, on_delete=models.PROTECT, related_name="+")
    reported = models.JSONField(default=dict)

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["step_run", "attempt"], name="step_job_once"),
        ]


class StepSweep(Row):
    """A sweep of a step. All of them count in its cost."""

    id = IdField("pss")
    step_run = models.ForeignKey(StepRun, on_delete=models.CASCADE, related_name="sweeps")
    attempt = models.PositiveSmallIntegerField()
    sweep = models.OneToOneField(Sweep, on_delete=models.PROTECT, related_name="+")

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["step_run", "attempt"], name="step_sweep_once"),
        ]
