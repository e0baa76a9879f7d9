"""Datasets, their versions, the files in them, and the pieces those are made of."""

from datetime import timedelta
from typing import Any, ClassVar

from django.db import models
from django.db.models import Count, Exists, Max, OuterRef, Q, Sum

from portal.accounts.models import Project, User
from portal.accounts.principal import Principal
from portal.core import clock
from portal.core.models import IdField, Row
from portal.datasets.lifecycle import sources_of
from portal.storage.models import StoredFile
from portal.workloads.models import Workload
from slipway.schemas.datasets import VersionState

# A deletion can be undone for this long.
UNDO_WITHIN = timedelta(days=3)


class DatasetQuerySet(models.QuerySet["Dataset"]):
    """Queries of datasets."""

    def visible_to(self, principal: Principal) -> "DatasetQuerySet":
        """Datasets of the projects in sight that are neither archived nor deleted."""
        return self.filter(project__in=principal.projects().live()).current()

    def of_project(self, project: Project) -> "DatasetQuerySet":
        """Datasets of one project, deleted ones included, with what answers need."""
        return self.filter(project=project).select_related("project", "created_by")

    def current(self) -> "DatasetQuerySet":
        """Datasets that are not deleted."""
        return self.filter(deleted_at__isnull=True)

    def matching(self, text: str) -> "DatasetQuerySet":
        """Datasets whose name or description holds `text`, all for an empty text."""
        if not text:
            return self
        return self.filter(Q(name__icontains=text) | Q(description__icontains=text))

    def with_totals(self) -> "DatasetQuerySet":
        """With `latest`, the newest number, and `ready_count` and `ready_bytes` of versions."""
        ready = Q(versions__state=VersionState.READY)
        return self.annotate(
            latest=Max("versions__number", filter=ready),
            ready_count=Count("versions", filter=ready),
            ready_bytes=Sum("versions__size_bytes", filter=ready),
        )

    def can_be_restored(self) -> "DatasetQuerySet":
        """Deleted ones whose deletion can be undone: of each name the last, if it is free."""
        newer = Dataset.objects.filter(
            Q(deleted_at__isnull=True) | Q(deleted_at__gt=OuterRef("deleted_at")),
            project=OuterRef("project"),
            name=OuterRef("name"),
        )
        recent = self.filter(deleted_at__gte=clock.now() - UNDO_WITHIN)
        return recent.filter(~Exists(newer)).order_by("-deleted_at")


class Dataset(Row):
    """A name in a project, and versions under it. `last_number` is the highest ever given."""

    id = IdField("ds")
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+")
    name = models.CharField(max_length=63)
    description = models.TextField(blank=True)
    last_number = models.PositiveIntegerField(default=0)
    created_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    deleted_at = models.DateTimeField(null=True, blank=True)

    objects: ClassVar[DatasetQuerySet] = DatasetQuerySet.as_manager()  # type: ignore[assignment]

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(
                fields=["project", "name"],
                condition=Q(deleted_at__isnull=True),
                name="dataset_once_a_name",
            ),
        ]

    def __str__(self) -> str:
        return self.name


class VersionQuerySet(models.QuerySet["Version"]):
    """Queries of versions. A transition is one guarded UPDATE that returns False on a lost race."""

    def ready(self) -> "VersionQuerySet":
        """Versions people see and jobs read, of datasets that are not deleted."""
        return self.filter(state=VersionState.READY, dataset__deleted_at__isnull=True)

    def can_be_restored(self) -> "VersionQuerySet":
        """Deleted ones whose deletion can be undone, the last first."""
        recent = self.filter(state=VersionState.DELETED, deleted_at__gte=clock.now() - UNDO_WITHIN)
        return recent.order_by("-deleted_at")

    def complete(self) -> "VersionQuerySet":
        """With what an answer about them needs."""
        return self.select_related("dataset__project", "created_by")

    def move(self, pk: str, target: VersionState, **changes: Any) -> bool:
        """Move one version to `target` from a state that allows it."""
        row = self.filter(pk=pk, state__in=sources_of(target))
        return bool(row.update(state=target, **changes))


class Version(Row):
    """Files under one dataset, which never change once it is ready.

    `touched_at` is when a draft was worked on last. `checker_until` is until when a worker has the
    check to itself. `settings` are its declarations about tables. `problems` holds the first of
    what is wrong, `bad_rows` counts all. `tables_left_out` counts tables beyond the limit.
    """

    id = IdField("dsv")
    dataset = models.ForeignKey(Dataset, on_delete=models.PROTECT, related_name="versions")
    number = models.PositiveIntegerField(null=True, blank=True)
    state = models.CharField(max_length=10, default=VersionState.DRAFT)
    note = models.TextField(blank=True)
    digest = models.CharField(max_length=64, blank=True)
    files = models.PositiveIntegerField(default=0)
    size_bytes = models.BigIntegerField(default=0)
    rows = models.BigIntegerField(null=True, blank=True)
    allow_bad_rows = models.BooleanField(default=False)
    settings = models.JSONField(default=dict)
    bad_rows = models.BigIntegerField(default=0)
    problems = models.JSONField(default=list)
    tables_left_out = models.PositiveIntegerField(default=0, db_default=0)
    reason = models.CharField(max_length=500, blank=True)
    same_as = models.PositiveIntegerField(null=True, blank=True)
    created_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    touched_at = models.DateTimeField(default=clock.now)
    checker_until = models.DateTimeField(null=True, blank=True)
    checks = models.PositiveSmallIntegerField(default=0)
    ready_at = models.DateTimeField(null=True, blank=True)
    deleted_at = models.DateTimeField(null=True, blank=True)

    objects: ClassVar[VersionQuerySet] = VersionQuerySet.as_manager()  # type: ignore[assignment]

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["dataset", "number"], name="version_once_a_number"),
        ]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["state", "touched_at"], name="version_by_state"),
        ]

    @property
    def reference(self) -> str:
        """Return the name that jobs use, such as `digits:3`, or the id if it has no number."""
        return f"{self.dataset.name}:{self.number}" if self.number else self.pk


class PieceQuerySet(models.QuerySet["Piece"]):
    """Queries of pieces."""

    def missing(self) -> "PieceQuerySet":
        """Pieces whose bytes have not arrived."""
        return self.filter(file__isnull=True)

    def unused(self) -> "PieceQuerySet":
        """Pieces no version has."""
        return self.filter(~Exists(Entry.objects.filter(piece=OuterRef("pk"))))


class Piece(Row):
    """Up to 16 MiB of a file, once a project: bytes from `offset` of a stored file.

    Small pieces share a stored file. `file` is empty until the bytes have arrived. `used_at` is
    when a draft named it last.
    """

    id = IdField("piece")
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+")
    sha256 = models.CharField(max_length=64)
    size_bytes = models.PositiveIntegerField()
    file = models.ForeignKey(
        StoredFile, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    offset = models.PositiveBigIntegerField(default=0)
    used_at = models.DateTimeField(default=clock.now)

    objects: ClassVar[PieceQuerySet] = PieceQuerySet.as_manager()  # type: ignore[assignment]

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["project", "sha256"], name="piece_once_a_project"),
        ]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["used_at"], name="piece_by_use"),
        ]


class EntryQuerySet(models.QuerySet["Entry"]):
    """Queries of entries."""

    def files(self) -> "EntryQuerySet":
        """One entry of each file: its first."""
        return self.filter(index=0)


class Entry(Row):
    """One piece of one file of a version, at its place `index`. An empty file has one, no piece.

    `digest` and `size_bytes` are those of the whole file. The digest of one that is still arriving
    is empty. `key` is the SHA-256 of the path: an order that is the same in every database.
    """

    id = IdField("dsf")
    version = models.ForeignKey(Version, on_delete=models.CASCADE, related_name="entries")
    path = models.CharField(max_length=1000)
    key = models.CharField(max_length=64)
    index = models.PositiveIntegerField(default=0)
    piece = models.ForeignKey(
        Piece, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    digest = models.CharField(max_length=64, blank=True)
    size_bytes = models.BigIntegerField()

    objects: ClassVar[EntryQuerySet] = EntryQuerySet.as_manager()  # type: ignore[assignment]

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["version", "key", "index"], name="entry_once_a_place"),
        ]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["version", "path"], name="entry_by_path"),
        ]


class DataTable(Row):
    """A table found in a version: `statistics` as `slipway.schemas.statistics`, its first rows.

    `schema` is what jobs read it with, as `slipway.schemas.tables.TableSchema`. A table that was
    not examined has none.
    """

    id = IdField("dst")
    version = models.ForeignKey(Version, on_delete=models.CASCADE, related_name="tables")
    name = models.CharField(max_length=1000)
    format = models.CharField(max_length=10)
    paths = models.JSONField(default=list)
    files = models.PositiveIntegerField()
    bad_rows = models.BigIntegerField(default=0)
    note = models.CharField(max_length=500, blank=True)
    statistics = models.JSONField(default=dict)
    schema = models.JSONField(default=dict)
    preview = models.JSONField(default=list)


class DatasetUse(Row):
    """A job or MLflow run that reads a version. `declared` is set if it was submitted with it."""

    id = IdField("dsu")
    version = models.ForeignKey(Version, on_delete=models.PROTECT, related_name="uses")
    workload = models.ForeignKey(
        Workload, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    run_id = models.CharField(max_length=64, blank=True)
    declared = models.BooleanField(default=False)
    by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(
                fields=["version", "workload", "run_id"],
                condition=Q(workload__isnull=False),
                name="use_once_a_job",
            ),
            models.UniqueConstraint(
                fields=["version", "run_id"],
                condition=Q(workload__isnull=True),
                name="use_once_a_run",
            ),
        ]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["workload"], name="use_by_workload"),
            models.Index(fields=["run_id"], name="use_by_run"),
        ]
