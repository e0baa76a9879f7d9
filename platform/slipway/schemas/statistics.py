"""What a table of data looks like, in numbers: its columns, and how their values are distributed.

Of a version of a dataset, and of anything else that is compared with one later.
"""

from enum import StrEnum

from pydantic import Field

from slipway.schemas.base import AnswerSchema

QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
HISTOGRAM_BINS = 20
TOP_VALUES = 20


class ColumnKind(StrEnum):
    """What the values of a column are."""

    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    TEXT = "text"
    TIME = "time"
    OTHER = "other"


class QuantileOf(AnswerSchema):
    """`share` of the values are at most `value`."""

    share: float
    value: float


class Bin(AnswerSchema):
    """How many values lie from `low` up to, but not at, `high`; the last bin holds its end too."""

    low: float
    high: float
    count: int


class TopValue(AnswerSchema):
    """A value, shortened to 100 characters, and how many rows have it."""

    value: str
    count: int


class NumberStatistics(AnswerSchema):
    """Of the finite values; `infinite` counts the others. `std` divides by n.

    Quantiles and histogram are of `sampled` values, evenly spread over the rows: of all of them
    while they fit into memory. `exact_min` and `exact_max` are set for whole numbers and decimals,
    which doubles may round.
    """

    min: float
    max: float
    exact_min: str | None = None
    exact_max: str | None = None
    mean: float
    std: float
    infinite: int = 0
    sampled: int = 0
    quantiles: list[QuantileOf] = []
    histogram: list[Bin] = []


class ColumnStatistics(AnswerSchema):
    """One column: `type` as Arrow writes it, `count` values and `missing` ones.

    `distinct` is an estimate unless `distinct_is_exact`; None where values are not told apart
    (fractions, lists). `top` holds the most frequent values, with counts that may be too low when
    `distinct_is_exact` is false.
    """

    name: str
    type: str
    kind: ColumnKind
    count: int
    missing: int
    distinct: int | None = None
    distinct_is_exact: bool = True
    number: NumberStatistics | None = None
    top: list[TopValue] = []
    earliest: str | None = None
    latest: str | None = None


class TableStatistics(AnswerSchema):
    """All of a table. `is_complete` is false where reading all of it would have taken too long."""

    rows: int
    is_complete: bool = True
    columns: list[ColumnStatistics] = Field(default=[])
