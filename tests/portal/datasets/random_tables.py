"""Random tables of every type, and the files that hold them."""

import bz2
import csv
import datetime as dt
import gzip
import io
import json
import lzma
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import openpyxl
import pyarrow as pa
from hypothesis import strategies as st
from pyarrow import orc, parquet

from slipway.schemas.tables import MISSING_WORDS
from tests.portal.datasets.workbooks import at, saved

_CHARACTERS = st.characters(codec="utf-8", exclude_categories=("Cc", "Cs"))
NAMES = st.text(_CHARACTERS, min_size=1, max_size=12).map(str.strip).filter(bool)
_ODD_TEXTS = [
    *("01234", "00431", "+43", "1e5", "1_000", "0x1F", "NA", "None", "nan", "null", "-", "true"),
    *("9007199254740993", "18446744073709551616", "0.1000", "12345678901234567.89", "1,5", "-0"),
    *("2024-01-05", "2024-01-05T10:00:00Z", "2024-13-01", "05.01.2024", " x ", 'a"b', "a,b;c|d"),
    *("line\nbreak", "José", "日本", "\U0001f600", "=1+1", "x" * 5000),
]
_NAIVE = st.datetimes(at(1700, 1, 1), at(2200, 1, 1))
TYPES: dict[Any, st.SearchStrategy[Any]] = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.float64(): st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([0.1, 1e300]),
    pa.bool_(): st.booleans(),
    pa.string(): st.sampled_from(_ODD_TEXTS) | st.text(_CHARACTERS, min_size=1, max_size=20),
    pa.timestamp("us"): _NAIVE,
    pa.timestamp("us", "UTC"): _NAIVE.map(lambda time: time.replace(tzinfo=dt.UTC)),
    pa.date32(): st.dates(dt.date(1, 1, 1)),
    pa.decimal128(30, 4): st.decimals(
        Decimal("-1e20"), Decimal("1e20"), allow_nan=False, allow_infinity=False, places=4
    ),
    pa.binary(): st.binary(max_size=10),
    pa.list_(pa.int64()): st.lists(
        st.integers(-(2**63), 2**63 - 1) | st.none(), min_size=1, max_size=3
    ).filter(any),
    pa.struct([("a", pa.int64()), ("b", pa.string())]): st.fixed_dictionaries(
        {"a": st.integers(0, 9), "b": st.sampled_from(["01", "x"])}
    ),
}
_TEXT_TYPES = (
    pa.int64(), pa.uint64(), pa.float64(), pa.bool_(), pa.string(), pa.timestamp("us"),
    pa.timestamp("us", "UTC"),
)  # fmt: skip
_NESTED = (pa.list_(pa.int64()), pa.struct([("a", pa.int64()), ("b", pa.string())]))
_EXCEL_TYPES = (pa.bool_(), pa.string())


def _csv(table: Any) -> bytes:
    sink = io.StringIO()
    writer = csv.writer(sink, quoting=csv.QUOTE_ALL)
    writer.writerow(table.column_names)
    for row in table.to_pylist():
        writer.writerow(["" if value is None else written(value) for value in row.values()])
    return sink.getvalue().encode()


def written(value: Any) -> str:
    """Return a value as CSV files have it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dt.datetime):
        return value.isoformat()
    return repr(value) if isinstance(value, float) else str(value)


def _json(table: Any) -> bytes:
    lines = [json.dumps(row, default=written, ensure_ascii=False) for row in table.to_pylist()]
    return "\n".join(lines).encode()


def _parquet(table: Any) -> bytes:
    sink = io.BytesIO()
    parquet.write_table(table, sink)
    return sink.getvalue()


def _orc(table: Any) -> bytes:
    sink = io.BytesIO()
    orc.write_table(table, sink)
    return sink.getvalue()


def _excel(table: Any) -> bytes:
    book = openpyxl.Workbook()
    sheet = book.active
    rows = [table.column_names, *(list(row.values()) for row in table.to_pylist())]
    for line, row in enumerate(rows, start=1):
        for column, value in enumerate(row, start=1):
            cell = sheet.cell(line, column)
            cell.value = value
            if isinstance(value, str):
                cell.data_type = "s"
    return saved(book)


def _zstd(content: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(content)
    return bytes(sink.getvalue().to_pybytes())


@dataclass(frozen=True)
class Format:
    """A kind of file: the end of its name, its writer, and the types that it can hold."""

    end: str
    write: Callable[[Any], bytes]
    types: tuple[Any, ...]


_ORC_TYPES = tuple(kind for kind in TYPES if kind != pa.uint64())
FORMATS = (
    Format(".csv", _csv, _TEXT_TYPES),
    Format(".csv.gz", lambda table: gzip.compress(_csv(table)), _TEXT_TYPES),
    Format(".csv.xz", lambda table: lzma.compress(_csv(table)), _TEXT_TYPES),
    Format(".jsonl", _json, (*_TEXT_TYPES, *_NESTED)),
    Format(".jsonl.zst", lambda table: _zstd(_json(table)), (*_TEXT_TYPES, *_NESTED)),
    Format(".jsonl.bz2", lambda table: bz2.compress(_json(table)), (*_TEXT_TYPES, *_NESTED)),
    Format(".parquet", _parquet, tuple(TYPES)),
    Format(".orc", _orc, _ORC_TYPES),
    Format(".xlsx", _excel, _EXCEL_TYPES),
)


@st.composite
def tables(draw: st.DrawFn) -> tuple[Format, Any]:
    """Draw a table and the format of its file; each column has a value in some row."""
    format_ = draw(st.sampled_from(FORMATS))
    kinds = draw(st.lists(st.sampled_from(format_.types), min_size=1, max_size=4))
    names = draw(st.lists(NAMES, min_size=len(kinds), max_size=len(kinds), unique=True))
    count = draw(st.integers(1, 6))
    columns: list[Any] = []
    for kind in kinds:
        # Rows of Excel without any value are none.
        is_full = format_.write is _excel and not columns
        some = TYPES[kind] if is_full else TYPES[kind] | st.none()
        values = draw(st.lists(some, min_size=count, max_size=count))
        if values[0] is None:
            values[0] = draw(TYPES[kind])
        columns.append(pa.array(values, kind))
    return format_, pa.Table.from_arrays(columns, names=names)


def is_same(value: Any, original: Any, format_: Format) -> bool:
    """Return whether a value that was read is the one that was written.

    In text files a text may be read as the number or time that gives it back.
    """
    if original is None or value is None:
        is_word = isinstance(original, str) and original.strip() in MISSING_WORDS
        return value is None and (original is None or (is_word and format_.write is not _json))
    if type(value) is type(original) or not isinstance(original, str):
        return bool(value == original) or (
            # Numbers of which one has more digits than a double holds stay text.
            isinstance(value, str) and value == written(original)
        )
    if isinstance(value, bool):
        return original.strip().lower() == str(value).lower()
    if isinstance(value, dt.datetime):
        return dt.datetime.fromisoformat(original.strip()) == value
    if isinstance(value, int):
        return original.strip() == str(value)
    return isinstance(value, float) and float(original) == value
