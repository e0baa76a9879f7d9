"""A table as it is read: its columns, its first rows, and what cannot be read in it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from portal.datasets.examining.columns import Column
from slipway.schemas.datasets import Problem
from slipway.schemas.statistics import TableStatistics

MAX_COLUMNS = 2_000
PROBLEMS_KEPT = 100
PREVIEW_ROWS = 200
_PREVIEW_COLUMNS = 200
_PREVIEW_CHARACTERS = 200
_MOST_KEPT_NUMBERS = 16_000_000
_MOST_KEPT_OF_A_COLUMN = 50_000


class Unreadable(Exception):
    """The rest of a file cannot be read; says why and, where known, at which line."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.message, self.line = message, line


@dataclass
class Table:
    """What is known of a table so far. `mixed` names columns whose values do not agree."""

    columns: dict[str, Column] = field(default_factory=dict)
    rows: int = 0
    bad_rows: int = 0
    problems: list[Problem] = field(default_factory=list)
    preview: list[list[str | None]] = field(default_factory=list)
    is_complete: bool = True
    mixed: set[str] = field(default_factory=set)

    def begin(self, types: Mapping[str, Any]) -> None:
        """Make the columns; raises Unreadable when there are too many or other ones than before."""
        if len(types) > MAX_COLUMNS:
            raise Unreadable(f"It has {len(types)} columns; at most {MAX_COLUMNS} are examined.", 1)
        if self.columns and list(types) != list(self.columns):
            raise Unreadable("It has other columns than the parts of the table before it.", 1)
        room = min(_MOST_KEPT_OF_A_COLUMN, _MOST_KEPT_NUMBERS // max(1, len(types)))
        for name, kind in types.items():
            self.columns.setdefault(name, Column(name, kind, room=room))

    def add(self, values: Sequence[Any]) -> None:
        """Take in a batch: one Arrow array a column, in their order."""
        if not values:
            return
        self._show(values)
        self.rows += len(values[0])
        for column, some in zip(self.columns.values(), values, strict=True):
            column.add(some)

    def complain(
        self, path: str, message: str, *, line: int | None = None, column: str | None = None
    ) -> None:
        """Note a bad row."""
        self.bad_rows += 1
        if len(self.problems) < PROBLEMS_KEPT:
            self.problems.append(
                Problem(path=path, line=line, column=column and column[:200], message=message[:300])
            )

    def _show(self, values: Sequence[Any]) -> None:
        wanted = PREVIEW_ROWS - len(self.preview)
        if wanted <= 0:
            return
        shown = [some.slice(0, wanted).to_pylist() for some in values[:_PREVIEW_COLUMNS]]
        self.preview += [[_cell(value) for value in row] for row in zip(*shown, strict=True)]

    def statistics(self) -> TableStatistics:
        """Return the statistics of all that was read; a mixed column can only be read as text."""
        columns = [column.statistics() for column in self.columns.values()]
        for column in columns:
            if column.name in self.mixed:
                column.type = "string"
        return TableStatistics(rows=self.rows, is_complete=self.is_complete, columns=columns)


def _cell(value: object) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    return str(value)[:_PREVIEW_CHARACTERS].replace("\0", "\ufffd")


def cast_or_none(values: Any, kind: Any) -> Any | None:
    """Return the values as another type, None when one of them is not one."""
    try:
        return pc.cast(values, kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def misfits(values: Any, kind: Any, *, limit: int) -> list[int]:
    """Return the places of values that cannot become `kind`, at most about `limit` of them."""
    found: list[int] = []
    spans = [(0, len(values))]
    while spans and len(found) < limit:
        start, end = spans.pop()
        if cast_or_none(values.slice(start, end - start), kind) is not None:
            continue
        if end - start == 1:
            found.append(start)
            continue
        middle = start + math.ceil((end - start) / 2)
        spans += [(middle, end), (start, middle)]
    return sorted(found)
