"""A table as it is read: statistics of its columns, its first rows, and its bad rows."""

import json
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from portal.datasets.table_inspection.columns import ColumnProfile, profile_limits
from slipway.schemas.datasets import TableProblem
from slipway.schemas.statistics import TableStatistics

PROBLEMS_KEPT = 100
PREVIEW_ROWS = 200
_PREVIEW_COLUMNS = 200
_PREVIEW_CHARACTERS = 200


@dataclass
class TableProfile:
    """The columns and rows of a table, as far as it has been read."""

    columns: dict[str, ColumnProfile] = field(default_factory=dict)
    rows: int = 0
    problems: list[TableProblem] = field(default_factory=list)
    preview: list[list[str | None]] = field(default_factory=list)

    def add(self, batch: Any) -> None:
        """Add a record batch."""
        if not self.columns:
            room = profile_limits(batch.num_columns)
            self.columns = {
                item.name: ColumnProfile(item.name, item.type, room=room) for item in batch.schema
            }
        self._show(batch)
        self.rows += batch.num_rows
        for column, values in zip(self.columns.values(), batch.columns, strict=True):
            column.add(values)

    def note(self, problem: TableProblem) -> None:
        """Store a problem, if it is one of the first."""
        if len(self.problems) < PROBLEMS_KEPT:
            self.problems.append(problem)

    def _show(self, batch: Any) -> None:
        preview_rows = PREVIEW_ROWS - len(self.preview)
        if preview_rows <= 0:
            return
        shown = [_values(some.slice(0, preview_rows)) for some in batch.columns[:_PREVIEW_COLUMNS]]
        self.preview += [[_cell(value) for value in row] for row in zip(*shown, strict=True)]

    def statistics(self, schema: Any, *, is_complete: bool) -> dict[str, Any]:
        """Return the statistics as JSON. Columns that were in no batch are empty."""
        columns = self.columns or {
            item.name: ColumnProfile(item.name, item.type, room=profile_limits(1))
            for item in schema
        }
        statistics = [column.statistics() for column in columns.values()]
        whole = TableStatistics(rows=self.rows, is_complete=is_complete, columns=statistics)
        return whole.model_dump(mode="json")


def _values(some: Any) -> list[Any]:
    try:
        return list(some.to_pylist())
    except (ValueError, OverflowError, KeyError, ImportError):
        # A time outside the range of Python's datetime, or in an unknown time zone.
        return list(pc.cast(pc.cast(some, pa.int64()), pa.string()).to_pylist())


def _cell(value: object) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    if isinstance(value, dict | list):
        return _shortened(json.dumps(value, ensure_ascii=False, default=_cell))
    return _shortened(str(value))


def _shortened(text: str) -> str:
    return text[:_PREVIEW_CHARACTERS].replace("\0", "\ufffd")
