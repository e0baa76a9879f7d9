"""Storages of Optuna studies: the log from which each client of Optuna rebuilds its studies."""

from typing import ClassVar

from django.db import models

from portal.accounts.models import Project, User
from portal.accounts.principal import Principal
from portal.core.models import IdField, Row
from portal.training.models import Job
from slipway.schemas.studies import MAX_ENTRIES, MAX_SIZE_BYTES


class OptunaStorageQuerySet(models.QuerySet["OptunaStorage"]):
    """Queries of storages."""

    def of_project(self, project: Project) -> "OptunaStorageQuerySet":
        """Storages of one project."""
        return self.filter(project=project)

    def visible_to(self, principal: Principal) -> "OptunaStorageQuerySet":
        """Storages of the projects in sight that are not archived."""
        return self.filter(project__in=principal.projects().live())

    def to_replay(self) -> "OptunaStorageQuerySet":
        """Storages with entries that are not in the rows of their studies yet."""
        return self.filter(replayed__lt=models.F("length"), replay_error="")


class OptunaStorage(Row):
    """An append-only log of Optuna's JournalStorage, which holds any number of studies.

    `length` is the number of its entries, and the number that the next entry gets. `size_bytes` is
    their size. The control worker has replayed `replayed` of them into rows of studies and trials,
    and stops with `replay_error` at one that Optuna cannot apply.
    """

    id = IdField("opst")
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+")
    created_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    name = models.CharField(max_length=48)
    length = models.PositiveIntegerField(default=0)
    size_bytes = models.PositiveBigIntegerField(default=0)
    replayed = models.PositiveIntegerField(default=0)
    replay_error = models.CharField(max_length=500, blank=True)

    objects: ClassVar[OptunaStorageQuerySet] = OptunaStorageQuerySet.as_manager()  # type: ignore[assignment]

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["project", "name"], name="optuna_storage_once_a_name"),
            models.CheckConstraint(
                condition=models.Q(length__lte=MAX_ENTRIES, size_bytes__lte=MAX_SIZE_BYTES),
                name="optuna_storage_within_bounds",
            ),
            models.CheckConstraint(
                condition=models.Q(replayed__lte=models.F("length")),
                name="optuna_storage_replayed_at_most_length",
            ),
        ]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(
                fields=["id"],
                condition=models.Q(replayed__lt=models.F("length")),
                name="optuna_storage_to_replay",
            ),
        ]

    def __str__(self) -> str:
        return self.name


class OptunaLogEntry(Row):
    """One operation on a study, as JSON. Numbers count from 0, without gaps.

    `job` is the job whose token appended it.
    """

    id = IdField("opl")
    storage = models.ForeignKey(OptunaStorage, on_delete=models.CASCADE, related_name="+")
    number = models.PositiveIntegerField()
    text = models.TextField()
    job = models.ForeignKey(Job, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(
                fields=["storage", "number"], name="optuna_log_entry_once_a_number"
            ),
        ]
