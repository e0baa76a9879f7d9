"""Optuna studies and their trials, as the log of their storage tells them."""

from typing import ClassVar

from django.db import models

from portal.accounts.models import Project
from portal.accounts.principal import Principal
from portal.core.models import IdField, Row
from portal.sweeps.models.storages import OptunaStorage
from portal.training.models import Job
from slipway.schemas.studies import OptunaTrialState

_TRIAL_STATES = [state.value for state in OptunaTrialState]


class OptunaStudyQuerySet(models.QuerySet["OptunaStudy"]):
    """Queries of studies."""

    def of_project(self, project: Project) -> "OptunaStudyQuerySet":
        """Studies of one project, with their storages."""
        live = self.filter(storage__project=project, storage__deleted_at__isnull=True)
        return live.select_related("storage__project")

    def visible_to(self, principal: Principal) -> "OptunaStudyQuerySet":
        """Studies of the projects in sight that are not archived."""
        live = self.filter(storage__deleted_at__isnull=True)
        return live.filter(storage__project__in=principal.projects().live())


class OptunaStudy(Row):
    """A study of a storage. `number` is its id within the storage.

    `goals` are `min` or `max`, one for each value of a trial. `parameters` maps names to `log` and
    `choices`, as of the newest trial that has them. `trials` and `running` count its trials; `best`
    is the number of the best complete one, None with several goals.
    """

    id = IdField("ost")
    storage = models.ForeignKey(OptunaStorage, on_delete=models.CASCADE, related_name="studies")
    number = models.PositiveIntegerField()
    name = models.CharField(max_length=250)
    goals = models.JSONField()
    parameters = models.JSONField(default=dict)
    trials = models.PositiveIntegerField(default=0)
    running = models.PositiveIntegerField(default=0)
    best = models.PositiveIntegerField(null=True, blank=True)
    best_value = models.FloatField(null=True, blank=True)
    changed_at = models.DateTimeField()

    objects: ClassVar[OptunaStudyQuerySet] = OptunaStudyQuerySet.as_manager()  # type: ignore[assignment]

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["storage", "number"], name="optuna_study_once"),
        ]

    def __str__(self) -> str:
        return self.name


class OptunaTrial(Row):
    """A trial of a study. `job` is the job that created it, if one did.

    `value` is the first of `measured`, the values that the study optimizes. Values that are not
    finite are None. `values` are those of its parameters.
    """

    id = IdField("otr")
    study = models.ForeignKey(OptunaStudy, on_delete=models.CASCADE, related_name="+")
    number = models.PositiveIntegerField()
    state = models.CharField(max_length=16)
    values = models.JSONField(default=dict)
    value = models.FloatField(null=True, blank=True)
    measured = models.JSONField(default=list)
    job = models.ForeignKey(Job, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["study", "number"], name="optuna_trial_once_a_number"),
            models.CheckConstraint(
                condition=models.Q(state__in=_TRIAL_STATES), name="optuna_trial_known_state"
            ),
        ]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["study", "state", "value"], name="optuna_trial_by_value"),
        ]

    @property
    def status(self) -> OptunaTrialState:
        """The state, as a value of the enum."""
        return OptunaTrialState(self.state)
