"""Between what arrives and what a model takes: the two protocols a format has to fill."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from slipway.schemas.serving import Signature
from workers.serving.wire import RequestFrame


@dataclass(frozen=True, slots=True)
class InferAsk:
    """What a request of the Open Inference Protocol wants of its answer.

    `outputs` are the names to answer with, all when empty; `binary` names those that go as bytes,
    `all_binary` those that are not named, too.
    """

    id: str | None = None
    outputs: tuple[str, ...] = ()
    binary: frozenset[str] = frozenset()
    all_binary: bool = False


@dataclass(slots=True)
class Batch:
    """One request as the model takes it. Those with equal `key` may be predicted together."""

    inputs: Any
    rows: int
    key: Hashable
    params: dict[str, Any] = field(default_factory=dict)
    infer: InferAsk | None = None


class Codec(Protocol):
    """Reads requests for one model."""

    def read(self, requested: RequestFrame) -> Batch:
        """Return what a request asks for; raises BadInput."""

    def join(self, batches: Sequence[Batch]) -> Any:
        """Return the inputs of several batches with equal keys as one."""


class Model(Protocol):
    """A loaded model."""

    @property
    def platform(self) -> str:
        """The name of its format."""

    @property
    def signature(self) -> Signature:
        """What it takes and gives."""

    @property
    def codec(self) -> Codec:
        """What reads requests for it."""

    def predict(self, inputs: Any, params: dict[str, Any]) -> Any:
        """Return arrays, tables or lists whose first axis are the rows; may raise anything."""
