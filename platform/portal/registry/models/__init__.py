"""What MLflow's tables lack: stages, moves, what files say, figures, requests. One file a noun."""

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
