"""Experiments of a project, and their tags."""

from collections.abc import Iterable
from typing import ClassVar

from django.db import models

from portal.experiments.models.tables import TrackingTable


class ExperimentQuerySet(models.QuerySet["Experiment"]):
    """Queries of experiments."""

    def in_projects(self, project_ids: Iterable[str]) -> "ExperimentQuerySet":
        """Experiments of these projects, and of no other."""
        return self.filter(workspace__in=list(project_ids))

    def active(self) -> "ExperimentQuerySet":
        """Experiments that are not in the trash."""
        return self.filter(lifecycle_stage="active")


class Experiment(TrackingTable):
    """An experiment of a project. Times are milliseconds since 1970.

    `workspace` is the project's id. A name is unique within it. Every project has one called
    `Default`, made when first asked for, which clients know under the id "0" as well.
    """

    experiment_id = models.AutoField(primary_key=True)
    name = models.CharField(max_length=256)
    artifact_location = models.CharField(max_length=256, null=True)  # noqa: DJ001  (as MLflow has it)
    lifecycle_stage = models.CharField(max_length=32)
    creation_time = models.BigIntegerField(null=True)
    last_update_time = models.BigIntegerField(null=True)
    workspace = models.CharField(max_length=63)

    objects: ClassVar[ExperimentQuerySet] = ExperimentQuerySet.as_manager()  # type: ignore[assignment]

    class Meta(TrackingTable.Meta):
        db_table = "experiments"


class ExperimentTag(TrackingTable):
    """A tag of an experiment. `mlflow.note.content` is its description."""

    pk = models.CompositePrimaryKey("key", "experiment_id")
    key = models.CharField(max_length=250)
    value = models.TextField(null=True)  # noqa: DJ001
    experiment = models.ForeignKey(
        Experiment, on_delete=models.DO_NOTHING, db_column="experiment_id", related_name="tags"
    )

    class Meta(TrackingTable.Meta):
        db_table = "experiment_tags"
