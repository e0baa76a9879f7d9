"""Runs, and what was logged to them."""

import math
from collections.abc import Iterable
from typing import ClassVar

from django.db import models

from portal.experiments.models.experiments import Experiment
from portal.experiments.models.tables import TrackingTable

# MLflow stores infinities as this value, because JSON cannot represent them.
LARGEST = 1.7976931348623157e308


def number_of(value: float, *, is_nan: bool) -> float:
    """Return the number that was logged, from the stored value: NaN, ±inf or finite."""
    if is_nan:
        return math.nan
    if value >= LARGEST:
        return math.inf
    return -math.inf if value <= -LARGEST else value


class RunQuerySet(models.QuerySet["Run"]):
    """Queries of runs."""

    def in_projects(self, project_ids: Iterable[str]) -> "RunQuerySet":
        """Runs of these projects, and of no other."""
        return self.filter(experiment__workspace__in=list(project_ids))

    def active(self) -> "RunQuerySet":
        """Runs that are not in the trash."""
        return self.filter(lifecycle_stage="active")


class Run(TrackingTable):
    """A run. Times are milliseconds since 1970.

    `status` is RUNNING, SCHEDULED, FINISHED, FAILED or KILLED. `lifecycle_stage` is active or
    deleted (in the trash, since `deleted_time`).
    """

    run_uuid = models.CharField(max_length=32, primary_key=True)
    name = models.CharField(max_length=250, null=True)  # noqa: DJ001  (as MLflow has it)
    source_type = models.CharField(max_length=20, null=True)  # noqa: DJ001
    source_name = models.CharField(max_length=500, null=True)  # noqa: DJ001
    entry_point_name = models.CharField(max_length=50, null=True)  # noqa: DJ001
    user_id = models.CharField(max_length=256, null=True)  # noqa: DJ001
    status = models.CharField(max_length=20)
    start_time = models.BigIntegerField(null=True)
    end_time = models.BigIntegerField(null=True)
    deleted_time = models.BigIntegerField(null=True)
    source_version = models.CharField(max_length=50, null=True)  # noqa: DJ001
    lifecycle_stage = models.CharField(max_length=20)
    artifact_uri = models.CharField(max_length=200, null=True)  # noqa: DJ001
    experiment = models.ForeignKey(
        Experiment, on_delete=models.DO_NOTHING, db_column="experiment_id", related_name="runs"
    )

    objects: ClassVar[RunQuerySet] = RunQuerySet.as_manager()  # type: ignore[assignment]

    class Meta(TrackingTable.Meta):
        db_table = "runs"


class Metric(TrackingTable):
    """One point of a curve. Read `number`, never `value`, which cannot hold NaN and infinities."""

    pk = models.CompositePrimaryKey("key", "timestamp", "step", "run_id", "value", "is_nan")
    key = models.CharField(max_length=250)
    value = models.FloatField()
    timestamp = models.BigIntegerField()
    step = models.BigIntegerField()
    is_nan = models.BooleanField()
    run = models.ForeignKey(
        Run, on_delete=models.DO_NOTHING, db_column="run_uuid", related_name="metrics"
    )

    class Meta(TrackingTable.Meta):
        db_table = "metrics"

    @property
    def number(self) -> float:
        """Return the value that was logged."""
        return number_of(self.value, is_nan=self.is_nan)


class LatestMetric(TrackingTable):
    """The last point of each curve, by (step, timestamp, value). Read `number`, never `value`."""

    pk = models.CompositePrimaryKey("key", "run_id")
    key = models.CharField(max_length=250)
    value = models.FloatField()
    timestamp = models.BigIntegerField(null=True)
    step = models.BigIntegerField()
    is_nan = models.BooleanField()
    run = models.ForeignKey(
        Run, on_delete=models.DO_NOTHING, db_column="run_uuid", related_name="latest_metrics"
    )

    class Meta(TrackingTable.Meta):
        db_table = "latest_metrics"

    @property
    def number(self) -> float:
        """Return the value that was logged."""
        return number_of(self.value, is_nan=self.is_nan)


class Param(TrackingTable):
    """A parameter of a run, written once."""

    pk = models.CompositePrimaryKey("key", "run_id")
    key = models.CharField(max_length=250)
    value = models.CharField(max_length=8000)
    run = models.ForeignKey(
        Run, on_delete=models.DO_NOTHING, db_column="run_uuid", related_name="params"
    )

    class Meta(TrackingTable.Meta):
        db_table = "params"


class Tag(TrackingTable):
    """A tag of a run. `mlflow.note.content` is its description."""

    pk = models.CompositePrimaryKey("key", "run_id")
    key = models.CharField(max_length=250)
    value = models.CharField(max_length=8000, null=True)  # noqa: DJ001  (as MLflow has it)
    run = models.ForeignKey(
        Run, on_delete=models.DO_NOTHING, db_column="run_uuid", related_name="tags"
    )

    class Meta(TrackingTable.Meta):
        db_table = "tags"
