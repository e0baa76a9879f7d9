"""READMEs of projects."""

from typing import ClassVar

from django.db import models
from django.db.models import Q

from portal.accounts.models.people import User
from portal.accounts.models.tenancy import Project
from portal.core import clock
from portal.core.models import IdField, Row


class ProjectReadme(Row):
    """The README of a project, in Markdown. `version` counts the saves, from 1.

    It is a table of its own, because every request loads the project and few show this text.
    """

    id = IdField("rdm")
    project = models.OneToOneField(Project, on_delete=models.PROTECT, related_name="+")
    text = models.TextField(blank=True)
    version = models.PositiveIntegerField(default=1)
    saved_at = models.DateTimeField(default=clock.now)
    saved_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.CheckConstraint(condition=Q(version__gte=1), name="readme_version_from_one"),
        ]
