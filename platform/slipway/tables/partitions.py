"""Columns whose values are in the names of folders, as Hive and Spark write them: `year=2026`."""

from collections.abc import Mapping, Sequence

import pyarrow as pa

from slipway.schemas.tables import ReadSettings
from slipway.tables.columns import Column


def partition_columns(
    values: Mapping[str, Sequence[str | None]], settings: ReadSettings
) -> dict[str, Column]:
    """Return a column for each name, of a type that all its values have.

    The type follows the rules of CSV: `month=01` is text, because a number has no leading zero.
    """
    columns = {}
    for name, texts in values.items():
        column = Column(name, settings, None)
        column.from_texts(pa.array(texts, pa.string()), lambda row, message: None)
        column.type, column.is_settled = column.arrow_type, True
        columns[name] = column
    return columns
