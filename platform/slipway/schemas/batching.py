"""Whether requests to a version of a model are merged, as people state it and see it."""

from typing import Literal

from slipway.schemas.base import AnswerSchema, RequestSchema
from slipway.schemas.serving import BatchingMode, BatchingVerdict


class BatchingIn(RequestSchema):
    """The author's statement for a version. Null leaves it to the golden rows."""

    mode: BatchingMode | None


class BatchingOut(AnswerSchema):
    """The treatment of requests to a version that wait together, and its reason.

    `stated` is what its author said, at the registration or in the metadata of an MLflow model.
    `gain` says what merging gains or would gain, where a replica has measured it: `alone_us` is the
    time of a row alone, `merged_us` that of each of `merged_rows` rows in one call.
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
