"""Saved views of runs."""

from typing import ClassVar

from django.db import models
from django.db.models import Q

from portal.accounts.models import Project, User
from portal.core.models import IdField, Row


class SavedViewQuerySet(models.QuerySet["SavedView"]):
    """Queries of saved views."""

    def of(self, project: Project, person: User) -> "SavedViewQuerySet":
        """The views of a project that a person sees: the shared ones and their own."""
        return self.filter(Q(is_private=False) | Q(saved_by=person), project=project)


class SavedView(Row):
    """A list of runs as an address describes it, under a name that is unique in the project.

    `query` is the part of the address after the question mark. Without `experiment_id` (MLflow's)
    the list is that of all runs. A private view exists for its author alone, and its name is
    unique among theirs.
    """

    id = IdField("view")
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+")
    name = models.CharField(max_length=100)
    query = models.TextField(blank=True)
    experiment_id = models.PositiveIntegerField(null=True)
    saved_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    is_private = models.BooleanField(default=False, db_default=False)

    objects: ClassVar[SavedViewQuerySet] = SavedViewQuerySet.as_manager()  # type: ignore[assignment]

    class Meta(Row.Meta):
        # The pages were the first to have views.
        db_table = "web_savedview"
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(
                fields=["project", "name"],
                condition=Q(is_private=False),
                name="shared_view_name_once_a_project",
            ),
            models.UniqueConstraint(
                fields=["project", "saved_by", "name"],
                condition=Q(is_private=True),
                name="private_view_name_once_a_person",
            ),
        ]
