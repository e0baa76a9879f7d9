"""Statistics of tables: columns and the distribution of their values.

Used for dataset versions and for everything that is compared with one later.
"""

from enum import StrEnum

from pydantic import Field

from slipway.schemas.base import AnswerSchema

QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
HISTOGRAM_BINS = 20
TOP_VALUES = 20


class ColumnKind(StrEnum):
    """Kind of the values of a column."""

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
    """Number of values from `low` up to, but excluding, `high`. The last bin includes `high`."""

    low: float
    high: float
    count: int


class TopValue(AnswerSchema):
    """A value, shortened to 100 characters, and its number of rows."""

    value: str
    count: int


class NumberStatistics(AnswerSchema):
    """Statistics of the finite values. `infinite` counts the others. `std` divides by n.

    Quantiles and histogram use `sampled` values, evenly spread over the rows, which are all of
    them if they fit into memory. `exact_min` and `exact_max` are set for integers and decimals,
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
    """Statistics of a column: `type` in Arrow's notation, `count` values and `missing` ones.

    `distinct` is an estimate unless `distinct_is_exact`. It is null where values are not
    distinguished (fractions, lists). `top` holds the most frequent values, with counts that may be
    too low when `distinct_is_exact` is false.
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
    """Statistics of a table. `is_complete` is false if a full read would have taken too long."""

    rows: int
    is_complete: bool = True
    columns: list[ColumnStatistics] = Field(default=[])
