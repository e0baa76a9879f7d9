"""Wire schemas of batch predictions: a dataset predicted with a version of a model, by a job.

Under `/api/v1/projects/{project}`:

GET    batch-predictions                PageOf[BatchPredictionOut]; ?q= matches model, data, output
POST   batch-predictions                BatchPredictionIn → BatchPredictionOut (201)
POST   batch-predictions/quote          BatchPredictionIn → BatchPredictionQuote: nothing is started
GET    batch-predictions/{job}          BatchPredictionOut

By the token of the job alone:

GET    batch-predictions/{job}/spec           PredictionSpec
GET    batch-predictions/{job}/files/{number} a file of the model
PUT    batch-predictions/{job}/output         PredictionOutput → OutputStatus: once a job
GET    batch-predictions/{job}/output         OutputStatus

A batch prediction has the id of its job, which is cancelled, watched and followed as any job.
"""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from slipway.schemas.base import (
    AnswerSchema,
    Line,
    Name,
    Number,
    RequestSchema,
    Slug,
    Text,
    Truth,
    Whole,
)
from slipway.schemas.datasets import DatasetName, DatasetReference, VersionState
from slipway.schemas.environments import EnvironmentReference
from slipway.schemas.registry import ModelName
from slipway.schemas.serving import BatchingMode, GoldenPrediction, ModelFile, ModelFormat
from slipway.schemas.serving import Signature as ServingSignature
from slipway.schemas.tables import ColumnName
from slipway.schemas.training import Quote, Tags
from slipway.schemas.workloads import WorkloadState

ON_ERROR = ("stop", "skip")
# Columns of the output.
PREDICTION = "prediction"
ERROR = "prediction_error"

OnError = Literal["stop", "skip"]
Columns = Annotated[list[ColumnName], Field(max_length=20_000)]


class BatchPredictionIn(RequestSchema):
    """A dataset to predict with a version of a model, and the dataset that gets the result.

    `version` is a number, an alias or a stage of the model. Without it, the latest one is used.
    `data` is a version of a dataset (`sales:3`, without a number the latest), `table` one of its
    tables, if it has several. `output` is the name of a dataset of the project, which is created
    if there is none. Its new version has the rows of the table in their order, with the columns
    `keep` (all of them if it is left out) and the predictions. `columns` are those that the model
    gets: by default the inputs of its signature, or all. With `on_error` `stop` the first row that
    the model refuses ends the job, with `skip` it gets no prediction and its reason in
    `prediction_error`. `environment` is a named environment, such as `trees@2`, in place of the
    packages that came with the model. The other fields are those of a job.
    """

    model: ModelName
    version: Annotated[Line, Field(min_length=1, max_length=100)] | None = None
    data: DatasetReference
    table: Annotated[Line, Field(min_length=1, max_length=1000)] | None = None
    output: DatasetName
    keep: Columns | None = None
    columns: Columns | None = None
    on_error: OnError = "stop"
    environment: EnvironmentReference | None = None
    name: Name | None = None
    tier: Slug | None = None
    pool: Slug | None = None
    priority: Whole = Field(default=0, ge=-100, le=100)
    max_attempts: Whole = Field(default=3, ge=1, le=20)
    preemptible: Truth = False
    max_hours: Number | None = Field(default=None, gt=0, le=8760)
    tags: Tags = {}


class BatchPredictionQuote(AnswerSchema):
    """Price of a batch prediction, and the versions that it would use at present."""

    model: str
    version: int
    data: str
    table: str
    rows: int
    columns: list[str]
    quote: Quote


class BatchPredictionOut(AnswerSchema):
    """A batch prediction. `id` is that of its job, and `state` and `explanation` are the job's.

    `output_version` is the version that it has made, `sales-predictions:2`, null before its end.
    `rows` counts the rows of the table, `failed_rows` those without a prediction, and `step` those
    that have been predicted so far. `left_out_rows` counts rows of the dataset that cannot be read
    and so belong to no table. `rows_per_call` is the largest number of rows in one call of the
    model, and `batching` says why. `first_failure` is the first row that failed, with its reason.
    """

    id: str
    project: str
    name: str
    model: str
    version: int
    data: str
    table: str
    output: str
    output_version: str | None = None
    keep: list[str] | None = None
    columns: list[str]
    on_error: OnError
    state: WorkloadState
    explanation: str
    next_step: str | None = None
    tier: str
    step: int | None = None
    rows: int | None = None
    failed_rows: int | None = None
    left_out_rows: int = 0
    rows_per_second: float | None = None
    rows_per_call: int | None = None
    batching: str = ""
    first_failure: str = ""
    nano_usd_per_hour: int
    cost_nano_usd: int
    submitted_by: str
    created_at: datetime
    ended_at: datetime | None = None


class PredictionSpec(AnswerSchema):
    """Work of the job of a batch prediction.

    `model`, `version` and the fields up to `batching` describe the model, as `ReplicaSpec` does.
    """

    model: str
    version: str
    format: ModelFormat
    entry: str | None = None
    files: list[ModelFile] = []
    signature: ServingSignature | None = None
    golden: list[GoldenPrediction] = []
    batching: BatchingMode | None = None
    data: str
    table: str
    columns: list[str]
    keep: list[str]
    output: str
    on_error: OnError
    note: str


class PredictionOutput(RequestSchema):
    """The result of a job: a draft of a version of the output dataset, and what it counted."""

    draft: Annotated[Line, Field(min_length=1, max_length=32)]
    rows: Whole = Field(ge=0, lt=2**62)
    failed_rows: Whole = Field(ge=0, lt=2**62)
    seconds: Number = Field(ge=0, le=1e9)
    rows_per_call: Whole = Field(ge=1, le=1_000_000)
    batching: Annotated[Text, Field(max_length=1000)] = ""
    first_failure: Annotated[Text, Field(max_length=2000)] = ""


class OutputStatus(AnswerSchema):
    """The output of a job. `state` is null before it has reported any.

    `reference` is the version (`sales-predictions:2`) once it is ready, and `reason` says why it
    was refused.
    """

    state: VersionState | None = None
    reference: str | None = None
    reason: str = ""


def rows_text(value: Any) -> str:
    """Return a number of rows for people: `1 row`, `12,000 rows`."""
    return f"{value:,} {'row' if value == 1 else 'rows'}"
