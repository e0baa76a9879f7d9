"""Models as they were logged, before anybody registers one."""

from collections.abc import Iterable
from typing import ClassVar

from django.db import models

from portal.experiments.models.experiments import Experiment
from portal.experiments.models.runs import Run
from portal.experiments.models.tables import TrackingTable


class LoggedModelQuerySet(models.QuerySet["LoggedModel"]):
    """Queries of logged models."""

    def in_projects(self, project_ids: Iterable[str]) -> "LoggedModelQuerySet":
        """Logged models of these projects, and of no other."""
        return self.filter(experiment__workspace__in=list(project_ids))


class LoggedModel(TrackingTable):
    """A model that a run logged. `status`: 1 pending, 2 ready, 3 upload failed."""

    model_id = models.CharField(max_length=36, primary_key=True)
    experiment = models.ForeignKey(
        Experiment,
        on_delete=models.DO_NOTHING,
        db_column="experiment_id",
        related_name="logged_models",
    )
    name = models.CharField(max_length=500)
    artifact_location = models.CharField(max_length=1000)
    creation_timestamp_ms = models.BigIntegerField()
    last_updated_timestamp_ms = models.BigIntegerField()
    status = models.IntegerField()
    lifecycle_stage = models.CharField(max_length=32, null=True)  # noqa: DJ001  (as MLflow has it)
    model_type = models.CharField(max_length=500, null=True)  # noqa: DJ001
    source_run_id = models.CharField(max_length=32, null=True)  # noqa: DJ001
    status_message = models.CharField(max_length=1000, null=True)  # noqa: DJ001

    objects: ClassVar[LoggedModelQuerySet] = LoggedModelQuerySet.as_manager()  # type: ignore[assignment]

    class Meta(TrackingTable.Meta):
        db_table = "logged_models"


class LoggedModelTag(TrackingTable):
    """A tag of a logged model."""

    pk = models.CompositePrimaryKey("model_id", "tag_key")
    model = models.ForeignKey(
        LoggedModel, on_delete=models.DO_NOTHING, db_column="model_id", related_name="tags"
    )
    experiment_id = models.IntegerField()
    tag_key = models.CharField(max_length=255)
    tag_value = models.TextField()

    class Meta(TrackingTable.Meta):
        db_table = "logged_model_tags"


class LoggedModelParam(TrackingTable):
    """A parameter of a logged model."""

    pk = models.CompositePrimaryKey("model_id", "param_key")
    model = models.ForeignKey(
        LoggedModel, on_delete=models.DO_NOTHING, db_column="model_id", related_name="params"
    )
    experiment_id = models.IntegerField()
    param_key = models.CharField(max_length=255)
    param_value = models.TextField()

    class Meta(TrackingTable.Meta):
        db_table = "logged_model_params"


class LoggedModelMetric(TrackingTable):
    """A metric that a run measured of a logged model, perhaps on a data set."""

    pk = models.CompositePrimaryKey(
        "model_id", "metric_name", "metric_timestamp_ms", "metric_step", "run_id"
    )
    model = models.ForeignKey(
        LoggedModel, on_delete=models.DO_NOTHING, db_column="model_id", related_name="metrics"
    )
    metric_name = models.CharField(max_length=500)
    metric_timestamp_ms = models.BigIntegerField()
    metric_step = models.BigIntegerField()
    metric_value = models.FloatField(null=True)
    experiment_id = models.IntegerField()
    run = models.ForeignKey(
        Run, on_delete=models.DO_NOTHING, db_column="run_id", related_name="model_metrics"
    )
    dataset_uuid = models.CharField(max_length=36, null=True)  # noqa: DJ001  (as MLflow has it)
    dataset_name = models.CharField(max_length=500, null=True)  # noqa: DJ001
    dataset_digest = models.CharField(max_length=36, null=True)  # noqa: DJ001

    class Meta(TrackingTable.Meta):
        db_table = "logged_model_metrics"
