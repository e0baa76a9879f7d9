"""Notebooks of projects: each save is a version, made of contents that are stored once."""

from datetime import timedelta
from typing import ClassVar

from django.db import models
from django.db.models import Exists, F, OuterRef, Q, Subquery

from portal.accounts.models import Project, User
from portal.core import clock
from portal.core.models import IdField, Row
from portal.storage.models import StoredFile
from portal.workloads.models import Workload

UNDO_WITHIN = timedelta(days=3)


class Content(Row):
    """Source or outputs of a notebook in one project, named by the SHA-256 of its bytes.

    All versions with the same source, or the same outputs, refer to the same row.
    """

    id = IdField("nbc")
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+")
    digest = models.CharField(max_length=64)
    file = models.ForeignKey(StoredFile, on_delete=models.PROTECT, related_name="+")

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["project", "digest"], name="notebook_content_once"),
        ]


class NotebookFileQuerySet(models.QuerySet["NotebookFile"]):
    """Queries of notebooks."""

    def of_project(self, project: Project) -> "NotebookFileQuerySet":
        """Notebooks of one project, deleted ones included, with what answers about them need."""
        return self.filter(project=project).select_related("project").with_check()

    def current(self) -> "NotebookFileQuerySet":
        """Notebooks that are not deleted."""
        return self.filter(deleted_at=None)

    def restorable(self) -> "NotebookFileQuerySet":
        """Deleted ones whose deletion can be undone: of each path the last, if it is free."""
        newer = NotebookFile.objects.filter(
            Q(deleted_at=None) | Q(deleted_at__gt=OuterRef("deleted_at")),
            project=OuterRef("project"),
            path=OuterRef("path"),
        )
        recent = self.filter(deleted_at__gte=clock.now() - UNDO_WITHIN)
        return recent.filter(~Exists(newer)).order_by("-deleted_at")

    def with_check(self) -> "NotebookFileQuerySet":
        """With `checked_number` and `checked_passed`: the last verification that came to an end."""
        ended = NotebookRun.objects.filter(
            version__file=OuterRef("pk"), purpose="verify", passed__isnull=False
        ).order_by("-workload_id")
        return self.annotate(
            checked_number=Subquery(ended.values("version__number")[:1]),
            checked_passed=Subquery(ended.values("passed")[:1]),
        )

    def matching(self, text: str) -> "NotebookFileQuerySet":
        """Notebooks whose path holds `text`, all for an empty text."""
        return self.filter(path__icontains=text) if text else self

    def advance(self, file_id: str, *, seen: int) -> bool:
        """Assign the next version number. Returns False if it changed meanwhile or was deleted."""
        files = self.current().filter(pk=file_id, head=seen)
        return bool(files.update(head=F("head") + 1))


class NotebookFile(Row):
    """A notebook by its path in the project. `head` is the number of its newest version.

    A deleted one can be taken back for `UNDO_WITHIN`, while no other has its path by then.
    """

    id = IdField("nb")
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+")
    path = models.CharField(max_length=500)
    head = models.PositiveIntegerField(default=0)
    created_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    deleted_at = models.DateTimeField(null=True, blank=True)

    objects: ClassVar[NotebookFileQuerySet] = NotebookFileQuerySet.as_manager()  # type: ignore[assignment]

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(
                fields=["project", "path"],
                condition=Q(deleted_at=None),
                name="notebook_once_a_path",
            ),
        ]

    def __str__(self) -> str:
        return self.path


class NotebookVersionQuerySet(models.QuerySet["NotebookVersion"]):
    """Queries of versions."""

    def complete(self) -> "NotebookVersionQuerySet":
        """Versions with what answers about them and reading them need."""
        return self.select_related(
            *("file__project", "source__file__blob", "outputs__file__blob", "created_by"),
            "origin_version__file",
        )


class NotebookVersion(Row):
    """A save of a notebook, never changed. `parameters` are the names and values, as text, of the
    cell tagged `parameters`. `origin_version` is what was restored or branched from.
    """

    id = IdField("nbv")
    file = models.ForeignKey(NotebookFile, on_delete=models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField()
    origin = models.CharField(max_length=10, default="save")
    origin_version = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    source = models.ForeignKey(Content, on_delete=models.PROTECT, related_name="+")
    outputs = models.ForeignKey(
        Content, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    cells = models.PositiveIntegerField()
    parameters = models.JSONField(default=list)
    created_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")

    objects: ClassVar[NotebookVersionQuerySet] = NotebookVersionQuerySet.as_manager()  # type: ignore[assignment]

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["file", "number"], name="notebook_version_once"),
            models.CheckConstraint(condition=Q(number__gte=1), name="notebook_version_from_one"),
        ]


class NotebookRunQuerySet(models.QuerySet["NotebookRun"]):
    """Queries of runs."""

    def of_project(self, project: Project) -> "NotebookRunQuerySet":
        """Runs of one project, with what answers about them need."""
        return self.filter(workload__project=project).select_related(
            *("workload__project", "workload__tier", "workload__submitted_by", "workload__team"),
            *("version__file", "output__blob"),
        )

    def record_result(self, run_id: str, *, passed: bool, report: dict[str, object]) -> bool:
        """Record the result of a verification. Returns False if it is recorded already."""
        open_ones = self.filter(pk=run_id, purpose="verify", passed__isnull=True)
        return bool(open_ones.update(passed=passed, report=report))


class NotebookRun(Row):
    """A job whose script is a notebook: to verify it, or for its results.

    Its state is on the workload. `version` is None for a notebook that came with a folder of
    code. `output` is the output notebook as it was sent last.
    """

    workload = models.OneToOneField(
        Workload, primary_key=True, on_delete=models.PROTECT, related_name="+"
    )
    version = models.ForeignKey(
        NotebookVersion, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    path = models.CharField(max_length=500)
    purpose = models.CharField(max_length=10)
    params = models.JSONField(default=dict)
    passed = models.BooleanField(null=True, blank=True)
    report = models.JSONField(null=True, blank=True)
    output = models.ForeignKey(
        StoredFile, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )

    objects: ClassVar[NotebookRunQuerySet] = NotebookRunQuerySet.as_manager()  # type: ignore[assignment]
