"""Storages of Optuna studies: the log from which each client of Optuna rebuilds its studies."""

from typing import ClassVar

from django.db import models

from portal.accounts.models import Project, User
from portal.accounts.principal import Principal
from portal.core.models import IdField, Row
from portal.training.models import Job
from slipway.schemas.studies import MAX_ENTRIES, MAX_ENTRY_BYTES, MAX_SIZE_BYTES

# Optuna appends up to so many entries at once.
_FEW_ENTRIES = 10


class OptunaStorageQuerySet(models.QuerySet["OptunaStorage"]):
    """Queries of storages."""

    def live(self) -> "OptunaStorageQuerySet":
        """Storages that are not deleted."""
        return self.filter(deleted_at__isnull=True)

    def deleted(self) -> "OptunaStorageQuerySet":
        """Storages whose rows the control worker still has to delete."""
        return self.filter(deleted_at__isnull=False)

    def of_project(self, project: Project) -> "OptunaStorageQuerySet":
        """Storages of one project that are not deleted."""
        return self.live().filter(project=project)

    def visible_to(self, principal: Principal) -> "OptunaStorageQuerySet":
        """Storages of the projects in sight that are not archived."""
        return self.live().filter(project__in=principal.projects().live())

    def to_replay(self) -> "OptunaStorageQuerySet":
        """Storages with entries that are not in the rows of their studies yet."""
        return self.live().filter(replayed__lt=models.F("length"), replay_error="")

    def with_studies(self) -> "OptunaStorageQuerySet":
        """Add `study_count`, the number of studies that the page shows."""
        return self.annotate(study_count=models.Count("studies"))


class OptunaStorage(Row):
    """An append-only log of Optuna's JournalStorage, which holds any number of studies.

    `length` is the number of its entries, and the number that the next entry gets. `size_bytes` is
    their size. The control worker has replayed `replayed` of them into rows of studies and trials,
    and stops with `replay_error` at one that Optuna cannot apply.

    With `deleted_at` the storage does not exist any more: nothing is appended, and its name may be
    that of another storage. The control worker deletes its rows.
    """

    id = IdField("opst")
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+")
    created_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    name = models.CharField(max_length=48)
    length = models.PositiveIntegerField(default=0)
    size_bytes = models.PositiveBigIntegerField(default=0)
    replayed = models.PositiveIntegerField(default=0)
    replay_error = models.CharField(max_length=500, blank=True)
    deleted_at = models.DateTimeField(null=True, blank=True)

    objects: ClassVar[OptunaStorageQuerySet] = OptunaStorageQuerySet.as_manager()  # type: ignore[assignment]

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(
                fields=["project", "name"],
                condition=models.Q(deleted_at__isnull=True),
                name="optuna_storage_once_a_live_name",
            ),
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
            models.Index(
                fields=["id"],
                condition=models.Q(deleted_at__isnull=False),
                name="optuna_storage_deleted",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def is_full(self) -> bool:
        """True if another append may be refused for lack of room."""
        return (
            self.length > MAX_ENTRIES - _FEW_ENTRIES
            or self.size_bytes > MAX_SIZE_BYTES - MAX_ENTRY_BYTES
        )

    @property
    def problem(self) -> str:
        """The reason why studies cannot go on in this storage, empty if they can."""
        if self.replay_error:
            return f"{self.replay_error} Optuna cannot read this storage any more."
        if self.is_full:
            return (
                f"The storage is full: it holds up to {MAX_ENTRIES:,} entries and "
                f"{MAX_SIZE_BYTES // 1024**2} MiB."
            )
        return ""

    @property
    def next_step(self) -> str:
        """Advice about the problem, empty if there is none."""
        if not self.problem:
            return ""
        return (
            'Go on in another storage, slipway.optuna_storage("NAME"), and delete this one when '
            "its studies are no longer needed."
        )


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
