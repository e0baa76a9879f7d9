"""Registered models, their versions, tags and aliases, as MLflow stores them.

Their keys begin with the workspace, so a query must name it: names repeat between projects.
"""

from django.db import models

from portal.experiments.models.tables import TrackingTable


class RegisteredModel(TrackingTable):
    """A named line of models of a project."""

    pk = models.CompositePrimaryKey("workspace", "name")
    name = models.CharField(max_length=256)
    creation_time = models.BigIntegerField(null=True)
    last_updated_time = models.BigIntegerField(null=True)
    description = models.CharField(max_length=5000, null=True)  # noqa: DJ001  (as MLflow has it)
    workspace = models.CharField(max_length=63)

    class Meta(TrackingTable.Meta):
        db_table = "registered_models"


class RegisteredModelTag(TrackingTable):
    """A tag of a registered model."""

    pk = models.CompositePrimaryKey("workspace", "key", "name")
    key = models.CharField(max_length=250)
    value = models.CharField(max_length=5000, null=True)  # noqa: DJ001
    name = models.CharField(max_length=256)
    workspace = models.CharField(max_length=63)

    class Meta(TrackingTable.Meta):
        db_table = "registered_model_tags"


class RegisteredModelAlias(TrackingTable):
    """A name that points at one version: `models:/digits@champion`."""

    pk = models.CompositePrimaryKey("workspace", "name", "alias")
    alias = models.CharField(max_length=256)
    version = models.IntegerField()
    name = models.CharField(max_length=256)
    workspace = models.CharField(max_length=63)

    class Meta(TrackingTable.Meta):
        db_table = "registered_model_aliases"


class ModelVersion(TrackingTable):
    """A version of a registered model. `storage_location` is where its files are."""

    pk = models.CompositePrimaryKey("workspace", "name", "version")
    name = models.CharField(max_length=256)
    version = models.IntegerField()
    creation_time = models.BigIntegerField(null=True)
    last_updated_time = models.BigIntegerField(null=True)
    description = models.CharField(max_length=5000, null=True)  # noqa: DJ001
    user_id = models.CharField(max_length=256, null=True)  # noqa: DJ001
    current_stage = models.CharField(max_length=20, null=True)  # noqa: DJ001
    source = models.CharField(max_length=500, null=True)  # noqa: DJ001
    run_id = models.CharField(max_length=32, null=True)  # noqa: DJ001
    status = models.CharField(max_length=20, null=True)  # noqa: DJ001
    status_message = models.CharField(max_length=500, null=True)  # noqa: DJ001
    run_link = models.CharField(max_length=500, null=True)  # noqa: DJ001
    storage_location = models.CharField(max_length=500, null=True)  # noqa: DJ001
    workspace = models.CharField(max_length=63)

    class Meta(TrackingTable.Meta):
        db_table = "model_versions"


class ModelVersionTag(TrackingTable):
    """A tag of a version."""

    pk = models.CompositePrimaryKey("workspace", "key", "name", "version")
    key = models.CharField(max_length=250)
    value = models.TextField(null=True)  # noqa: DJ001
    name = models.CharField(max_length=256)
    version = models.IntegerField()
    workspace = models.CharField(max_length=63)

    class Meta(TrackingTable.Meta):
        db_table = "model_version_tags"
