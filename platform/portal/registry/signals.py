"""Domain signals of models, for other apps."""

from dataclasses import dataclass

from portal.core.events import DomainSignal


@dataclass(frozen=True)
class ModelMoved:
    """A version entered a stage, or an alias changed. `version` is None for a removed alias."""

    project_id: str
    model: str
    kind: str
    target: str
    version: int | None


model_moved: DomainSignal[ModelMoved] = DomainSignal("model_moved")
