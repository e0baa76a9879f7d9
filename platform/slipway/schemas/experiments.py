"""Experiments, runs, curves and artifacts on the wire."""

import math
import posixpath
from datetime import datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, PlainSerializer, WithJsonSchema

from slipway.schemas.accounts import UserOut
from slipway.schemas.base import AnswerSchema, Line, RequestSchema, Text, Truth, Whole

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


class SavedViewIn(RequestSchema):
    """A view of runs to save. One of the same name is replaced.

    `query` is the part of a list's address after the question mark: filter, columns, order, charts.
    Without `experiment` the list is that of all runs. A `private` view exists for its author alone.
    """

    name: Annotated[Line, Field(min_length=1, max_length=100)]
    query: Annotated[Line, Field(max_length=8000)] = ""
    experiment: Annotated[Whole, Field(gt=0, le=2**31 - 1)] | None = None
    private: Truth = False


class SavedViewOut(AnswerSchema):
    """A saved view of runs, shared by the project or `private`. `link` opens it in a browser."""

    id: str
    name: str
    query: str
    experiment: int | None = None
    private: bool = False
    saved_by: UserOut
    created_at: datetime
    link: str


class RunOut(AnswerSchema):
    """A run with its logged values. Metrics have their last value.

    `user` is the person whose token logged it. What the client says is the tag `mlflow.user`.
    """

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


SYSTEM_TAGS = ("mlflow.", "slipway.")


def _own_tag(key: str) -> str:
    if key.startswith(SYSTEM_TAGS):
        raise ValueError("tags that begin with mlflow. or slipway. are set by the system")
    if posixpath.normpath(key) != key or key.startswith(("/", "..")):
        raise ValueError("a tag is not a path with empty parts, . or ..")
    return key


# As MLflow allows: letters, digits, spaces and _ - . : /
RunTagName = Annotated[
    Line,
    Field(min_length=1, max_length=250, pattern=r"^[/\w.\- :]+$"),
    AfterValidator(_own_tag),
]
RunTagValue = Annotated[Text, Field(max_length=8_000)]
RunTags = Annotated[dict[RunTagName, RunTagValue | None], Field(max_length=100)]


class RunChange(RequestSchema):
    """Changes to a run. `note` is Markdown; `tags` sets the given tags, and null removes a tag."""

    name: Annotated[Line, Field(min_length=1, max_length=250)] | None = None
    note: Annotated[Text, Field(max_length=8_000)] | None = None
    tags: RunTags | None = None


class RunsTagged(RunIds):
    """Runs, and the tags to set on each. Null removes a tag."""

    tags: Annotated[RunTags, Field(min_length=1)]


class RunsToMove(RunIds):
    """Runs, and the id of the experiment to move them to."""

    experiment: Annotated[Whole, Field(ge=1, le=2**31 - 1)]


class RunsMoved(AnswerSchema):
    """Runs that were changed. Runs that already are so, or are in the trash, are not listed."""

    runs: list[str]


class TrashEmptied(AnswerSchema):
    """Permanently deleted runs and files."""

    runs: int
    files: int
    size_bytes: int
