"""Saved views of runs."""

from typing import ClassVar

from django.db import models

from portal.accounts.models import Project, User
from portal.core.models import IdField, Row


class SavedView(Row):
    """A list of runs as an address describes it, under a name that is unique in the project.

    `query` is the part of the address after the question mark. Without `experiment_id` (MLflow's)
    the list is that of all runs.
    """

    id = IdField("view")
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+")
    name = models.CharField(max_length=100)
    query = models.TextField(blank=True)
    experiment_id = models.PositiveIntegerField(null=True)
    saved_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")

    class Meta(Row.Meta):
        # The pages were the first to have views.
        db_table = "web_savedview"
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["project", "name"], name="view_name_once_a_project"),
        ]
