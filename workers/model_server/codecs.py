"""Between what arrives and what a model takes: the two protocols a format has to fill."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from slipway.schemas.serving import Signature
from workers.serving.wire import RequestFrame


@dataclass(frozen=True, slots=True)
class InferOptions:
    """Output options of an Open Inference Protocol request.

    `outputs` are the requested names, all if empty. `binary` names the outputs sent as bytes, and
    `all_binary` makes that the default for unnamed ones.
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
    infer: InferOptions | None = None


class Codec(Protocol):
    """Reads requests for one model."""

    def read(self, requested: RequestFrame) -> Batch:
        """Return the parsed request. Raises BadInput."""

    def join(self, batches: Sequence[Batch]) -> Any:
        """Return the inputs of several batches with equal keys as one."""


class Model(Protocol):
    """A loaded model."""

    @property
    def platform(self) -> str:
        """The name of its format."""

    @property
    def signature(self) -> Signature:
        """Inputs and outputs of the model."""

    @property
    def codec(self) -> Codec:
        """Codec that reads requests for the model."""

    def predict(self, inputs: Any, params: dict[str, Any]) -> Any:
        """Return arrays, tables or lists with rows as the first axis. May raise any exception."""
