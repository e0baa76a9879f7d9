"""Models of this app, which extend MLflow's tables. One file for each noun."""

from portal.registry.models.lines import ModelLine, ProjectRules
from portal.registry.models.moves import Move, PromotionRequest
from portal.registry.models.versions import Evaluation, GoldenRecord, VersionRecord

__all__ = [
    "Evaluation",
    "GoldenRecord",
    "ModelLine",
    "Move",
    "ProjectRules",
    "PromotionRequest",
    "VersionRecord",
]
