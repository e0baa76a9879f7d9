"""Tables of a dataset in a job: read as the portal has examined them, or not at all.

It needs pyarrow, as nothing else of `slipway.dataset` does.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from slipway.errors import InvalidInput
from slipway.schemas.datasets import DataTableOut, TableProblem
from slipway.schemas.tables import ReadSettings, TableSchema, distinct_partitions
from slipway.tables import TableReader

Parts = Sequence[tuple[str, Path]]
_EXACT_IN_DOUBLE = 2**53


def read_table(table: DataTableOut, parts: Parts, settings: ReadSettings) -> Any:
    """Return a table with the schema that the portal has stored. Bad rows are left out.

    Raises InvalidInput where rows cannot be read and the version does not allow that.
    """
    schema = _stored_schema(table) or _determine_schema(table, parts, settings)
    reader = _Reading(table, schema, settings)
    batches = list(reader.batches(parts))
    return pa.Table.from_batches(batches, schema=reader.arrow_schema)


def read_batches(table: DataTableOut, parts: Parts, settings: ReadSettings) -> Iterator[Any]:
    """Yield the record batches of a table, with one at a time in memory. See `read_table`."""
    schema = _stored_schema(table) or _determine_schema(table, parts, settings)
    yield from _Reading(table, schema, settings).batches(parts)


def to_pandas(table: Any) -> Any:
    """Return a table as a DataFrame without rounding.

    Whole numbers with missing values are fractions in pandas, unless one of them is too large for
    that: then the column has a nullable type such as `Int64`. Lists of whole numbers with missing
    ones are lists of Python's values.
    """
    exact = [name for name in table.column_names if _needs_nullable(table.column(name))]
    frame = table.to_pandas(ignore_metadata=True)
    if exact:
        # pyarrow has imported pandas, and nothing else here needs it.
        pandas = sys.modules["pandas"]
        nullable = {
            getattr(pa, f"{sign.lower()}{bits}")(): getattr(pandas, f"{sign}{bits}Dtype")()
            for sign in ("Int", "UInt")
            for bits in (8, 16, 32, 64)
        }
        whole = table.select(exact).to_pandas(types_mapper=nullable.get, ignore_metadata=True)
        for name in exact:
            frame[name] = whole[name]
    for name in table.column_names:
        if _has_gaps_in_lists(table.column(name)):
            frame[name] = table.column(name).to_pylist()
    return frame


def _has_gaps_in_lists(column: Any) -> bool:
    """Return whether a column has lists of whole numbers, which pandas turns into floats."""
    if pa.types.is_struct(column.type):
        return any(_has_gaps_in_lists(part) for part in column.flatten())
    if not pa.types.is_list(column.type) and not pa.types.is_large_list(column.type):
        return False
    values = pc.list_flatten(column)
    if pa.types.is_integer(values.type):
        return bool(values.null_count)
    return _has_gaps_in_lists(values)


def _needs_nullable(column: Any) -> bool:
    if not pa.types.is_integer(column.type) or not column.null_count:
        return False
    ends = pc.min_max(column)
    low, high = ends["min"].as_py(), ends["max"].as_py()
    return low is not None and max(-low, high) > _EXACT_IN_DOUBLE


def _stored_schema(table: DataTableOut) -> TableSchema | None:
    schema = table.table_schema
    return schema if schema is not None and schema.is_complete else None


def _determine_schema(table: DataTableOut, parts: Parts, settings: ReadSettings) -> TableSchema:
    """Read a table whose rows were not all examined: later ones may widen its types."""
    partitions = distinct_partitions(name for name, _path in parts)
    reader = TableReader(settings, partitions=partitions, on_problem=lambda problem: None)
    for name, path in parts:
        with path.open("rb") as source:
            for _batch in reader.read(source, path=name, format=table.format):
                pass
    return reader.schema()


class _Reading:
    """One pass over the files of a table, with a schema that is final."""

    def __init__(self, table: DataTableOut, schema: TableSchema, settings: ReadSettings) -> None:
        self._table = table
        self._reader = TableReader(settings, schema=schema, on_problem=self._refuse)
        self.arrow_schema = self._reader.arrow_schema

    def _refuse(self, problem: TableProblem) -> None:
        if self._table.bad_rows:
            return
        place = f", line {problem.line}" if problem.line else ""
        column = f", column {problem.column}" if problem.column else ""
        raise InvalidInput(
            f"{problem.path}{place}{column}: {problem.message}",
            code="bad_rows",
            field="table",
            next_step="Correct the file or declare how it is read, and push a new version.",
        )

    def batches(self, parts: Parts) -> Iterator[Any]:
        for name, path in parts:
            with path.open("rb") as source:
                yield from self._reader.read(source, path=name, format=self._table.format)
        self._require_all_rows()

    def _require_all_rows(self) -> None:
        """Raise InvalidInput where the portal has counted another number of rows."""
        schema, counted = self._table.table_schema, self._table.statistics
        if schema is None or not schema.is_complete or counted.rows == self._reader.rows:
            return
        raise InvalidInput(
            f"{self._table.name} has {self._reader.rows:,} rows here and {counted.rows:,} on its "
            "page.",
            code="table_differs",
            field="table",
            next_step="Use the release of slipway that the portal has; report it if it stays.",
        )
