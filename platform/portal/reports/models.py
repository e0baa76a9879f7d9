"""Reports and their versions."""

from typing import ClassVar

from django.db import models
from django.db.models import Q

from portal.accounts.models import Project, User
from portal.core import clock
from portal.core.models import IdField, Row


class ReportQuerySet(models.QuerySet["Report"]):
    """Queryset of reports."""

    def of_project(self, project: Project) -> "ReportQuerySet":
        """Reports of a project, with their people."""
        return self.filter(project=project).select_related("created_by", "saved_by")

    def matching(self, text: str) -> "ReportQuerySet":
        """Return reports whose title contains `text`, or all if it is empty."""
        return self.filter(title__icontains=text) if text else self


class Report(Row):
    """A report. `version` is the number of its current version, `title` that version's title.

    `share_hash` is the SHA-256 of the share link's secret, empty while no link is on.
    """

    id = IdField("rpt")
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+")
    title = models.CharField(max_length=100)
    version = models.PositiveIntegerField(default=1)
    created_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    saved_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    saved_at = models.DateTimeField(default=clock.now)
    share_hash = models.CharField(max_length=64, blank=True, default="")
    shared_at = models.DateTimeField(null=True, blank=True)
    shared_by = models.ForeignKey(User, null=True, on_delete=models.PROTECT, related_name="+")

    objects: ClassVar[ReportQuerySet] = ReportQuerySet.as_manager()  # type: ignore[assignment]

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.CheckConstraint(condition=Q(version__gte=1), name="report_version_from_one"),
            models.UniqueConstraint(
                fields=["share_hash"], condition=~Q(share_hash=""), name="report_share_once"
            ),
        ]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["project", "-id"], name="report_by_project"),
        ]

    def __str__(self) -> str:
        return self.title


class ReportVersion(Row):
    """The content of a report as somebody saved it. Rows never change.

    `blocks` is the JSON of `slipway.schemas.reports.Block`, validated when it was saved.
    """

    id = IdField("rptv")
    report = models.ForeignKey(Report, on_delete=models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField()
    title = models.CharField(max_length=100)
    blocks = models.JSONField(default=list)
    saved_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["report", "number"], name="report_version_once"),
        ]
