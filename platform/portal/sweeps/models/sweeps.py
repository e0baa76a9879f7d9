"""Sweeps and their trials."""

from datetime import datetime
from typing import ClassVar

from django.db import models
from django.db.models import Count, Q

from portal.accounts.models import Project, User
from portal.accounts.principal import Principal
from portal.core.models import IdField, Row
from portal.training.models import Job
from slipway.schemas.sweeps import Constraint, Metric, ParameterSpace, SweepState, TrialState
from slipway.schemas.training import JobIn

_STATES = [state.value for state in SweepState]
_OPEN = [SweepState.RUNNING.value, SweepState.PAUSED.value]
_TRIAL_STATES = [state.value for state in TrialState]


class SweepQuerySet(models.QuerySet["Sweep"]):
    """Queries of sweeps."""

    def of_project(self, project: Project) -> "SweepQuerySet":
        """Sweeps of one project, with what every answer about them needs."""
        return self.filter(project=project).select_related("project", "created_by")

    def visible_to(self, principal: Principal) -> "SweepQuerySet":
        """Sweeps of the projects in sight that are not archived."""
        return self.filter(project__in=principal.projects().live())

    def unsettled(self) -> "SweepQuerySet":
        """Sweeps that may start trials, or have trials whose jobs may have ended."""
        running = Trial.objects.filter(state=TrialState.RUNNING)
        return self.filter(Q(state=SweepState.RUNNING) | Q(pk__in=running.values("sweep")))

    def recent(self, ended_after: datetime) -> "SweepQuerySet":
        """Sweeps that are open or ended after a time."""
        return self.filter(Q(state__in=_OPEN) | Q(ended_at__gt=ended_after))


class Sweep(Row):
    """A search for the values of parameters with which a metric is best.

    `job` is the submission that all trials share (`JobIn`), `space` the values that parameters may
    take. `trials` is how many may start, `started` how many have. `explanation` says why it is in
    its state. `scheduler`, `min_values` and `eta` say when trials are stopped early (`rungs`).
    `other_metrics` (`Metric`) are optimized together with `metric`; each of `constraints`
    (`Constraint`) must hold for a trial to be the best. `warm_start` are the sources of its
    `PriorTrial`s, `warm_start_note` says how many there are and what was left out.
    `variables` are environment variables of its schedule, which all trials have.
    `importance` has the share of each parameter in the differences of the first metric, estimated
    when `importance_of` trials were complete.
    """

    id = IdField("swp")
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+")
    created_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    name = models.CharField(max_length=100)
    state = models.CharField(max_length=16, default=SweepState.RUNNING)
    explanation = models.CharField(max_length=500, blank=True)
    next_step = models.CharField(max_length=300, blank=True)
    job = models.JSONField()
    space = models.JSONField()
    metric = models.CharField(max_length=250)
    goal = models.CharField(max_length=3)
    other_metrics = models.JSONField(default=list)
    constraints = models.JSONField(default=list)
    warm_start = models.JSONField(default=list)
    warm_start_note = models.CharField(max_length=500, blank=True)
    algorithm = models.CharField(max_length=32)
    trials = models.PositiveIntegerField()
    parallel = models.PositiveSmallIntegerField()
    retries = models.PositiveSmallIntegerField(default=0)
    seed = models.PositiveIntegerField(default=0)
    scheduler = models.CharField(max_length=16, default="none")
    min_values = models.PositiveIntegerField(default=1)
    eta = models.PositiveSmallIntegerField(default=3)
    started = models.PositiveIntegerField(default=0)
    variables = models.JSONField(null=True, blank=True)
    importance = models.JSONField(default=dict)
    importance_of = models.PositiveIntegerField(default=0)
    ended_at = models.DateTimeField(null=True, blank=True)

    objects: ClassVar[SweepQuerySet] = SweepQuerySet.as_manager()  # type: ignore[assignment]

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.CheckConstraint(condition=Q(state__in=_STATES), name="sweep_known_state"),
            models.CheckConstraint(
                condition=Q(started__lte=models.F("trials")), name="sweep_started_at_most_trials"
            ),
            models.CheckConstraint(
                condition=Q(state__in=_OPEN) ^ Q(ended_at__isnull=False), name="sweep_ended_at"
            ),
        ]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["project", "-id"], name="sweep_by_project"),
            models.Index(fields=["id"], condition=Q(state__in=_OPEN), name="sweep_open"),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def status(self) -> SweepState:
        """The state, as a value of the enum."""
        return SweepState(self.state)

    @property
    def job_in(self) -> JobIn:
        """The submission that all trials share."""
        return JobIn.model_validate(self.job)

    @property
    def parameters(self) -> dict[str, ParameterSpace]:
        """The values that parameters may take."""
        return {name: ParameterSpace.model_validate(space) for name, space in self.space.items()}

    @property
    def objective(self) -> Metric:
        """The metric, and whether more of it is better."""
        return Metric.model_validate({"name": self.metric, "goal": self.goal})

    @property
    def objectives(self) -> list[Metric]:
        """All metrics that are optimized, the first one included."""
        return [self.objective, *map(Metric.model_validate, self.other_metrics)]

    @property
    def importance_rows(self) -> list[tuple[str, float]]:
        """Parameters with their importance, the largest first."""
        return sorted(self.importance.items(), key=lambda item: (-item[1], item[0]))

    @property
    def bounds(self) -> list[Constraint]:
        """The constraints."""
        return [Constraint.model_validate(each) for each in self.constraints]


class TrialQuerySet(models.QuerySet["Trial"]):
    """Queries of trials."""

    def running(self) -> "TrialQuerySet":
        """Trials whose job has not ended, or whose end has not been recorded."""
        return self.filter(state=TrialState.RUNNING)

    def counts_of(self, sweep: Sweep) -> dict[str, int]:
        """Return the number of trials in each state."""
        rows = self.filter(sweep=sweep).order_by().values_list("state").annotate(number=Count("pk"))
        return {str(state): int(number) for state, number in rows}


class Trial(Row):
    """One set of values, and the job that tries them.

    `value` is the last value of the metric; a pruned trial has that of the comparison which it
    lost, None if that was not finite. `other_values` and `constraint_values` are the last values of
    the other metrics and of those of the constraints, in their order. `attempt` counts its jobs,
    `job` is the newest of them: a retry has the same number.
    """

    id = IdField("trl")
    sweep = models.ForeignKey(Sweep, on_delete=models.CASCADE, related_name="+")
    number = models.PositiveIntegerField()
    state = models.CharField(max_length=16, default=TrialState.RUNNING)
    values = models.JSONField()
    value = models.FloatField(null=True, blank=True)
    other_values = models.JSONField(default=list)
    constraint_values = models.JSONField(default=list)
    is_feasible = models.BooleanField(default=True)
    explanation = models.CharField(max_length=500, blank=True)
    job = models.OneToOneField(Job, on_delete=models.PROTECT, related_name="+")
    attempt = models.PositiveSmallIntegerField(default=1)
    ended_at = models.DateTimeField(null=True, blank=True)

    objects: ClassVar[TrialQuerySet] = TrialQuerySet.as_manager()  # type: ignore[assignment]

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["sweep", "number"], name="trial_once_a_number"),
            models.CheckConstraint(condition=Q(state__in=_TRIAL_STATES), name="trial_known_state"),
            models.CheckConstraint(
                condition=Q(state=TrialState.PRUNED)
                | (Q(state=TrialState.COMPLETE) ^ Q(value__isnull=True)),
                name="trial_complete_with_value",
            ),
        ]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(
                fields=["sweep"], condition=Q(state=TrialState.RUNNING), name="trial_running"
            ),
            models.Index(fields=["sweep", "state", "value"], name="trial_by_value"),
        ]

    @property
    def status(self) -> TrialState:
        """The state, as a value of the enum."""
        return TrialState(self.state)


class PriorTrial(Row):
    """A run of before, as a trial from which a sweep learns. `number` counts from 0, the oldest."""

    id = IdField("ptr")
    sweep = models.ForeignKey(Sweep, on_delete=models.CASCADE, related_name="+")
    number = models.PositiveIntegerField()
    run_id = models.CharField(max_length=32)
    values = models.JSONField()
    value = models.FloatField()
    other_values = models.JSONField(default=list)
    constraint_values = models.JSONField(default=list)
    is_feasible = models.BooleanField(default=True)

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["sweep", "number"], name="prior_trial_once_a_number"),
        ]


class TrialJob(Row):
    """A job of a trial. One that was retried has several, which all count in its cost."""

    id = IdField("trj")
    trial = models.ForeignKey(Trial, on_delete=models.CASCADE, related_name="+")
    attempt = models.PositiveSmallIntegerField()
    job = models.OneToOneField(Job, on_delete=models.PROTECT, related_name="+")

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["trial", "attempt"], name="trial_job_once_an_attempt"),
        ]


class KeptTrial(Row):
    """The job of the failed trial of a sweep that was kept for shells last: one at a time.

    Written in `portal.sweeps.services.kept_trials`.
    """

    id = IdField("ktrl")
    sweep = models.OneToOneField(Sweep, on_delete=models.CASCADE, related_name="+")
    job = models.OneToOneField(Job, on_delete=models.PROTECT, related_name="+")


class TrialRepeat(Row):
    """A job with the values of a trial and another seed, which the script reads as `parameter`."""

    id = IdField("trpt")
    trial = models.ForeignKey(Trial, on_delete=models.CASCADE, related_name="+")
    parameter = models.CharField(max_length=250)
    seed = models.PositiveIntegerField()
    job = models.OneToOneField(Job, on_delete=models.PROTECT, related_name="+")

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["trial", "seed"], name="trial_repeat_once_a_seed"),
        ]


class TrialRung(Row):
    """A comparison of early stopping that a trial has reached, and its value there.

    `rung` counts from 0. `count` is the number of values after which it is. Trials of one `bracket`
    are compared with each other. `value` is None if it was not finite. `is_cut` while the trial is
    not to go on.
    """

    id = IdField("rng")
    trial = models.ForeignKey(Trial, on_delete=models.CASCADE, related_name="rungs")
    bracket = models.PositiveSmallIntegerField()
    rung = models.PositiveSmallIntegerField()
    count = models.PositiveIntegerField()
    value = models.FloatField(null=True, blank=True)
    is_cut = models.BooleanField(default=False)

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["trial", "rung"], name="trial_rung_once"),
        ]
