"""Rows of a table as requests of the scoring protocol, with the values that the SDK would send."""

import base64
import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc

_OPTIONS: Final = orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS


class BadRow(Exception):
    """A row that cannot be predicted. The message says why, for people."""


def body_of(rows: Any, columns: Sequence[str]) -> bytes:
    """Return a request for the rows of a record batch. Raises BadRow for values JSON has not."""
    chosen = [rows.column(name) for name in columns]
    for name, column in zip(columns, chosen, strict=True):
        if _has_infinity(column):
            raise BadRow(f"The column {name} is infinite, which a request cannot carry.")
    values = list(zip(*(column.to_pylist() for column in chosen), strict=True))
    try:
        document = {"dataframe_split": {"columns": list(columns), "data": values}}
        return orjson.dumps(document, _json_value, _OPTIONS)
    except TypeError as error:
        raise BadRow(f"A value cannot be sent as JSON: {error}.") from None


def _has_infinity(column: Any) -> bool:
    kind = column.type
    if pa.types.is_floating(kind):
        return bool(pc.any(pc.is_inf(column)).as_py())
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _has_infinity(pc.list_flatten(column))
    if pa.types.is_struct(kind):
        return any(_has_infinity(part) for part in column.flatten())
    return False


def _json_value(value: Any) -> Any:
    """Return a value that orjson does not write. A decimal becomes the nearest number."""
    if isinstance(value, dt.datetime | dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise TypeError(f"it is a {type(value).__name__}")
