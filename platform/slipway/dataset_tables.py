"""Tables of a dataset as Arrow tables: what needs pyarrow, and nothing else here does."""

import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from pyarrow import csv, parquet
from pyarrow import json as arrow_json

from slipway.schemas.datasets import DataTableOut

_MISSING = ["", "NA", "N/A", "#N/A", "NaN", "nan", "null", "NULL", "None", "none"]
_TYPES = {
    "int64": pa.int64(),
    "double": pa.float64(),
    "bool": pa.bool_(),
    "string": pa.string(),
    "timestamp[us]": pa.timestamp("us"),
    "timestamp[us, tz=UTC]": pa.timestamp("us", "UTC"),
}


def read_table(table: DataTableOut, paths: Sequence[Path]) -> pa.Table:
    """Read a table with the types its statistics name; rows that cannot be read are left out."""
    types = {
        column.name: _TYPES[column.type]
        for column in table.statistics.columns
        if column.type in _TYPES
    }
    readers = {"csv": _csv, "jsonl": _json_lines, "parquet": _parquet}
    reader = readers[table.format]
    parts = [reader(path, types, table.bad_rows) for path in paths]
    return pa.concat_tables(parts, promote_options="permissive")


def _csv(path: Path, types: dict[str, pa.DataType], _bad_rows: int) -> pa.Table:
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        first = file.readline()
    separator = max(",;\t|", key=first.count) if first else ","
    return csv.read_csv(
        path,
        parse_options=csv.ParseOptions(
            delimiter=separator,
            newlines_in_values=True,
            invalid_row_handler=lambda _row: "skip",
        ),
        convert_options=csv.ConvertOptions(
            column_types=types, null_values=_MISSING, strings_can_be_null=True
        ),
    )


def _json_lines(path: Path, types: dict[str, pa.DataType], bad_rows: int) -> pa.Table:
    if not bad_rows:
        options = arrow_json.ParseOptions(newlines_in_values=False)
        return arrow_json.read_json(path, parse_options=options)
    rows = []
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        for line in file:
            try:
                found = json.loads(line)
            except ValueError:
                continue
            if isinstance(found, dict):
                rows.append({name: _fit(found.get(name), kind) for name, kind in types.items()})
    return pa.Table.from_pylist(rows, schema=pa.schema(list(types.items())))


def _fit(value: object, kind: pa.DataType) -> object:
    if value is None or kind != pa.string():
        return value
    return value if isinstance(value, str) else json.dumps(value)


def _parquet(path: Path, _types: dict[str, pa.DataType], _bad_rows: int) -> pa.Table:
    return parquet.read_table(path)
