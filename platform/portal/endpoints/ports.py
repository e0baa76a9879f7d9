"""Ports of this app: the source of models, the judge of rollouts, and the hidden columns."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict

from portal.core.errors import Conflict
from slipway.schemas.serving import BatchingReport


class ServedFile(BaseModel):
    """A file of a model. `place` is its path at the source, or "" for a file on the node."""

    model_config = ConfigDict(frozen=True)

    path: str
    sha256: str
    size_bytes: int
    place: str = ""


class ServedModel(BaseModel):
    """Everything a replica needs to know of a model version. See `schemas.serving` for the fields.

    `model_dir` is the folder with the files, relative to the replica's own unless they are on the
    node already. `golden` are predictions with known answers. `requirements` are those of the
    environment it is served in, of that version of `python`. They are empty for the default
    environment. With `conda`, the canonical form of packages of conda, pip installs the
    requirements beside them. `example` is a body of `/invocations` that was logged with the model.
    `batching` is what its author stated, a `BatchingMode`.
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
    conda: str = ""
    example: str = ""
    batching: str | None = None


class ModelSource(Protocol):
    """Source of the model versions of a project."""

    def find(self, *, project_id: str, model: str, version: str | None) -> ServedModel:
        """Return a version, the latest for None. Called outside of transactions.

        Raises InvalidInput for one the project does not have, Conflict for one that may not be
        served.
        """

    def read(self, *, project_id: str, file: ServedFile) -> Iterator[bytes]:
        """Yield the bytes of a file of a version of that project."""

    def note_batching(
        self, *, project_id: str, served: ServedModel, report: BatchingReport
    ) -> None:
        """Record how a ready replica of a version treats requests that wait together."""


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
    """Judges the quality of predictions, which errors and latency do not show."""

    def rollback_reason(self, evidence: Evidence) -> str:
        """Return the reason to roll the revision back as a sentence, or "" if there is none.

        Called every few seconds inside a transaction, so it may only query the database.
        """


class HiddenColumnsProvider(Protocol):
    """Provides the columns of captured predictions that are dropped or hashed."""

    def hidden_columns(self, endpoint_ids: Collection[str]) -> Mapping[str, Mapping[str, str]]:
        """Return the hidden columns by endpoint: `drop` or `hash` by name."""


class _NoHiddenColumns:
    """Default while no app registers hidden columns."""

    def hidden_columns(self, endpoint_ids: Collection[str]) -> Mapping[str, Mapping[str, str]]:
        """Return nothing."""
        return {}


class _NoModels:
    """Default while no app provides models."""

    def find(self, *, project_id: str, model: str, version: str | None) -> ServedModel:
        """Raise Conflict."""
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
        """Do nothing."""


class _NoJudge:
    """Default while no app judges quality."""

    def rollback_reason(self, evidence: Evidence) -> str:
        """Return no reason."""
        return ""


class _Registry:
    """Implementations that other apps have registered in this process."""

    def __init__(self) -> None:
        self.models: ModelSource = _NoModels()
        self.judge: RolloutJudge = _NoJudge()
        self.hidings: HiddenColumnsProvider = _NoHiddenColumns()


_registry = _Registry()


def register_models(source: ModelSource) -> None:
    """Let endpoints serve the models of `source`. Called once, from the wiring of an app."""
    _registry.models = source


def models() -> ModelSource:
    """Return the registered source of models."""
    return _registry.models


def register_judge(judge: RolloutJudge) -> None:
    """Let `judge` take part in every rollout. Called once, from the wiring of an app."""
    _registry.judge = judge


def judge() -> RolloutJudge:
    """Return the registered judge of the quality of predictions."""
    return _registry.judge


def register_hidings(hidings: HiddenColumnsProvider) -> None:
    """Register the provider of hidden columns. Called once, from the wiring of an app."""
    _registry.hidings = hidings


def hidings() -> HiddenColumnsProvider:
    """Return the registered provider of hidden columns."""
    return _registry.hidings
