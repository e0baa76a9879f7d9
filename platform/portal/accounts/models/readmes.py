"""Texts in Markdown that people edit: READMEs of projects, and notes about their objects."""

from typing import ClassVar

from django.db import models
from django.db.models import Q

from portal.accounts.models.people import User
from portal.accounts.models.tenancy import Project
from portal.core import clock
from portal.core.ids import ID_MAX_LENGTH
from portal.core.models import IdField, Row


class EditedText(Row):
    """A text in Markdown that several people may edit. `version` counts the saves, from 1."""

    text = models.TextField(blank=True)
    version = models.PositiveIntegerField(default=1)
    saved_at = models.DateTimeField(default=clock.now)
    saved_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")

    class Meta(Row.Meta):
        abstract = True


class ProjectReadme(EditedText):
    """The README of a project.

    It is a table of its own, because every request loads the project and few show this text.
    """

    id = IdField("rdm")
    project = models.OneToOneField(Project, on_delete=models.PROTECT, related_name="+")

    class Meta(EditedText.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.CheckConstraint(condition=Q(version__gte=1), name="readme_version_from_one"),
        ]


class ObjectNote(EditedText):
    """The notes about an object of a project. `target` is its id and `kind` names its kind."""

    id = IdField("note")
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+")
    kind = models.CharField(max_length=32)
    target = models.CharField(max_length=ID_MAX_LENGTH)

    class Meta(EditedText.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(
                fields=["project", "kind", "target"], name="note_unique_per_object"
            ),
            models.CheckConstraint(condition=Q(version__gte=1), name="note_version_from_one"),
        ]
