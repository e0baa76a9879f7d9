"""Models of the app, nearly all of them of MLflow's own tables, one file per noun."""

from portal.experiments.models.experiments import Experiment, ExperimentTag
from portal.experiments.models.inputs import Input, InputTag, LoggedDataset
from portal.experiments.models.logged_models import (
    LoggedModel,
    LoggedModelMetric,
    LoggedModelParam,
    LoggedModelTag,
)
from portal.experiments.models.registered import (
    ModelVersion,
    ModelVersionTag,
    RegisteredModel,
    RegisteredModelAlias,
    RegisteredModelTag,
)
from portal.experiments.models.runs import LatestMetric, Metric, Param, Run, Tag
from portal.experiments.models.saved_views import SavedView
from portal.experiments.models.stored import StoredArtifacts

__all__ = [
    "Experiment",
    "ExperimentTag",
    "Input",
    "InputTag",
    "LatestMetric",
    "LoggedDataset",
    "LoggedModel",
    "LoggedModelMetric",
    "LoggedModelParam",
    "LoggedModelTag",
    "Metric",
    "ModelVersion",
    "ModelVersionTag",
    "Param",
    "RegisteredModel",
    "RegisteredModelAlias",
    "RegisteredModelTag",
    "Run",
    "SavedView",
    "StoredArtifacts",
    "Tag",
]
