"""Experiments, runs, curves and artifacts on the wire."""

import math
from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field, PlainSerializer, WithJsonSchema

from slipway.schemas.base import AnswerSchema, RequestSchema

RunId = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
Axis = Literal["step", "time"]
RunStatus = Literal["RUNNING", "SCHEDULED", "FINISHED", "FAILED", "KILLED"]
MOST_COMPARED = 200
MOST_KEYS = 50


def _spelled(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


# JSON cannot represent infinities and NaN. These three strings are parsed as such.
Number = Annotated[
    float,
    PlainSerializer(_spelled, return_type=float | str),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number"},
                {"type": "string", "enum": ["NaN", "Infinity", "-Infinity"]},
            ]
        }
    ),
]


class ExperimentOut(AnswerSchema):
    """An experiment of a project. `note` is its description. `deleted_at` is set in the trash."""

    id: int
    name: str
    note: str
    runs: int
    created_at: datetime | None = None
    newest_run_at: datetime | None = None
    deleted_at: datetime | None = None


class RunOut(AnswerSchema):
    """A run with its logged values. Metrics have their last value."""

    id: str
    experiment_id: int
    name: str
    status: str
    user: str
    started_at: datetime | None = None
    ended_at: datetime | None = None
    is_deleted: bool = False
    metrics: dict[str, Number]
    params: dict[str, str]
    tags: dict[str, str]


class DataInputOut(AnswerSchema):
    """A dataset that a run has read."""

    name: str
    digest: str
    source_type: str
    source: str
    context: str


class RunDetailOut(RunOut):
    """A run with its experiment, its input datasets and the id of its job."""

    experiment: str
    job: str | None = None
    inputs: list[DataInputOut]


class PointOut(AnswerSchema):
    """A point of a curve."""

    step: int
    at_ms: int
    value: Number


class CurveOut(AnswerSchema):
    """A metric over time. If `points` are fewer than `total`, they include minima and maxima."""

    run: str
    key: str
    total: int
    points: list[PointOut]


class ComparisonOut(AnswerSchema):
    """Runs side by side, in the requested order, with the names of values that differ."""

    runs: list[RunOut]
    differing_params: list[str]
    common_params: dict[str, str]
    metrics: list[str]


class ArtifactOut(AnswerSchema):
    """A file or folder among the artifacts of a run."""

    path: str
    is_folder: bool
    size_bytes: int


class RunIds(RequestSchema):
    """Runs to change."""

    runs: list[RunId] = Field(min_length=1, max_length=MOST_COMPARED)


class RunsMoved(AnswerSchema):
    """Runs that were moved to the trash or restored. Runs already in that state are not listed."""

    runs: list[str]


class TrashEmptied(AnswerSchema):
    """Permanently deleted runs and files."""

    runs: int
    files: int
    size_bytes: int
