"""Wire schemas for batching of requests to a model version."""

from typing import Literal

from slipway.schemas.base import AnswerSchema, RequestSchema
from slipway.schemas.serving import BatchingMode, BatchingVerdict


class BatchingIn(RequestSchema):
    """The author's batching mode of a version. Null leaves the decision to the golden rows."""

    mode: BatchingMode | None


class BatchingOut(AnswerSchema):
    """The batching mode of waiting requests to a version, and its reason.

    `stated` is the mode its author chose, at the registration or in the metadata of an MLflow
    model. `gain` is the gain of merging, if a replica has measured it: `alone_us` is the time of a
    single row, `merged_us` that of each of `merged_rows` rows in one call.
    """

    mode: BatchingMode
    stated: BatchingMode | None = None
    stated_in: Literal["registration", "metadata"] | None = None
    verdict: BatchingVerdict
    reason: str
    gain: str | None = None
    alone_us: float | None = None
    merged_us: float | None = None
    merged_rows: int | None = None
