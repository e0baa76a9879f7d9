"""What this room asks of others: where models come from, and who judges predictions."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict

from portal.core.errors import Conflict
from slipway.schemas.serving import BatchingReport


class ServedFile(BaseModel):
    """A file of a model. `place` is where its source finds it, "" for one that is on the node."""

    model_config = ConfigDict(frozen=True)

    path: str
    sha256: str
    size_bytes: int
    place: str = ""


class ServedModel(BaseModel):
    """What a replica has to know of a model version; `schemas.serving` says what the parts mean.

    `model_dir` is the folder with the files, relative to the replica's own unless they are on the
    node already. `golden` are predictions whose answers are known. `requirements` are those of the
    environment it is served in, of that version of `python`; empty for the one every node has.
    `example` is a body of `/invocations` that was logged with the model. `batching` is what its
    author stated, a `BatchingMode`.
    """

    model_config = ConfigDict(frozen=True)

    model: str
    version: str
    format: str
    model_dir: str = "model"
    entry: str | None = None
    files: tuple[ServedFile, ...] = ()
    signature: dict[str, Any] | None = None
    golden: tuple[dict[str, Any], ...] = ()
    requirements: str = ""
    python: str = ""
    example: str = ""
    batching: str | None = None


class ModelSource(Protocol):
    """Where the model versions of a project come from."""

    def find(self, *, project_id: str, model: str, version: str | None) -> ServedModel:
        """Return a version, the latest for None; called outside of transactions.

        Raises InvalidInput for one the project does not have, Conflict for one that may not be
        served.
        """

    def read(self, *, project_id: str, file: ServedFile) -> Iterator[bytes]:
        """Yield the bytes of a file of a version of that project."""

    def note_batching(
        self, *, project_id: str, served: ServedModel, report: BatchingReport
    ) -> None:
        """Keep how a ready replica of a version treats requests that wait together."""


@dataclass(frozen=True)
class Evidence:
    """A rollout to be judged: predictions of `revision_id` since `since`.

    `previous_id` is the revision it is compared with, where there is one.
    """

    project_id: str
    endpoint_id: str
    revision_id: str
    previous_id: str | None
    since: datetime


class RolloutJudge(Protocol):
    """Judges the quality of predictions, where errors and latency say nothing."""

    def trouble_with(self, evidence: Evidence) -> str:
        """Return in a sentence why the revision has to go back, "" while nothing speaks for it.

        Called every few seconds inside a transaction: database work alone.
        """


class Hidings(Protocol):
    """Knows which columns of captured predictions are dropped or hashed."""

    def hidden_of(self, endpoint_ids: Collection[str]) -> Mapping[str, Mapping[str, str]]:
        """Return by endpoint its hidden columns: `drop` or `hash` by name."""


class _NoHidings:
    """Nothing is hidden while no room says so."""

    def hidden_of(self, endpoint_ids: Collection[str]) -> Mapping[str, Mapping[str, str]]:
        """Return nothing."""
        return {}


class _NoModels:
    """The source while no room provides models."""

    def find(self, *, project_id: str, model: str, version: str | None) -> ServedModel:
        """Refuse."""
        raise Conflict(
            "This installation has no model registry for endpoints.",
            code="no_models",
            next_step="Ask an administrator to enable the model registry.",
        )

    def read(self, *, project_id: str, file: ServedFile) -> Iterator[bytes]:
        """Yield nothing."""
        return iter(())

    def note_batching(
        self, *, project_id: str, served: ServedModel, report: BatchingReport
    ) -> None:
        """Keep nothing."""


class _NoJudge:
    """The judge while no room judges quality."""

    def trouble_with(self, evidence: Evidence) -> str:
        """Find nothing."""
        return ""


class _Registry:
    """What other rooms have registered in this process."""

    def __init__(self) -> None:
        self.models: ModelSource = _NoModels()
        self.judge: RolloutJudge = _NoJudge()
        self.hidings: Hidings = _NoHidings()


_registry = _Registry()


def register_models(source: ModelSource) -> None:
    """Let endpoints serve the models of `source`; called once, from a room's wiring."""
    _registry.models = source


def models() -> ModelSource:
    """Return where models come from."""
    return _registry.models


def register_judge(judge: RolloutJudge) -> None:
    """Let `judge` take part in every rollout; called once, from a room's wiring."""
    _registry.judge = judge


def judge() -> RolloutJudge:
    """Return who judges the quality of predictions."""
    return _registry.judge


def register_hidings(hidings: Hidings) -> None:
    """Let `hidings` say what is hidden of captured predictions; called once, from a wiring."""
    _registry.hidings = hidings


def hidings() -> Hidings:
    """Return who knows what is hidden of captured predictions."""
    return _registry.hidings
