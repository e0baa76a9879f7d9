"""What happens to models, for rooms above."""

from dataclasses import dataclass

from portal.core.events import DomainSignal


@dataclass(frozen=True)
class ModelMoved:
    """A version came to a stage, or an alias was set; `version` is None where it was removed."""

    project_id: str
    model: str
    kind: str
    target: str
    version: int | None


model_moved: DomainSignal[ModelMoved] = DomainSignal("model_moved")
