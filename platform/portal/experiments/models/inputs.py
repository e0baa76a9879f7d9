"""Inputs of runs: data sets as MLflow describes them, and edges between runs and objects."""

from django.db import models

from portal.experiments.models.experiments import Experiment
from portal.experiments.models.tables import TrackingTable


class LoggedDataset(TrackingTable):
    """A data set that some run of an experiment named as its input."""

    pk = models.CompositePrimaryKey("experiment_id", "name", "digest")
    dataset_uuid = models.CharField(max_length=36)
    experiment = models.ForeignKey(
        Experiment, on_delete=models.DO_NOTHING, db_column="experiment_id", related_name="datasets"
    )
    name = models.CharField(max_length=500)
    digest = models.CharField(max_length=36)
    dataset_source_type = models.CharField(max_length=36)
    dataset_source = models.TextField()
    dataset_schema = models.TextField(null=True)  # noqa: DJ001  (as MLflow has it)
    dataset_profile = models.TextField(null=True)  # noqa: DJ001

    class Meta(TrackingTable.Meta):
        db_table = "datasets"


class Input(TrackingTable):
    """An edge: `source` was read by, or came out of, `destination`.

    A data set read by a run is DATASET → RUN. A logged model read by it is RUN_INPUT →
    MODEL_INPUT. One that came of it is RUN_OUTPUT → MODEL_OUTPUT.
    """

    pk = models.CompositePrimaryKey(
        "source_type", "source_id", "destination_type", "destination_id"
    )
    input_uuid = models.CharField(max_length=36)
    source_type = models.CharField(max_length=36)
    source_id = models.CharField(max_length=36)
    destination_type = models.CharField(max_length=36)
    destination_id = models.CharField(max_length=36)
    step = models.BigIntegerField()

    class Meta(TrackingTable.Meta):
        db_table = "inputs"


class InputTag(TrackingTable):
    """A tag of an edge. `mlflow.data.context` says what the data was for."""

    pk = models.CompositePrimaryKey("input_uuid", "name")
    input_uuid = models.CharField(max_length=36)
    name = models.CharField(max_length=255)
    value = models.CharField(max_length=500)

    class Meta(TrackingTable.Meta):
        db_table = "input_tags"
