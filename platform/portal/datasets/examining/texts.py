"""CSV and JSON lines: text in, Arrow arrays out, every fault with its line and column."""

import csv
import io
import json
import time
from collections.abc import Callable, Iterator
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc

from portal.datasets.examining.table import Table, Unreadable, cast_or_none, misfits

MAX_LINE = 4 * 1024**2
_BATCH_ROWS = 10_000
_BATCH_CHARACTERS = 8 * 1024**2
_MOST_BAD_IN_A_BATCH = 1_000
_MISSING = pa.array(
    ["", "NA", "N/A", "#N/A", "NaN", "nan", "null", "NULL", "None", "none"], pa.string()
)
_ZONED = pa.timestamp("us", "UTC")
# In this order: the first one that every value of the first rows fits.
_CANDIDATES = (pa.int64(), pa.float64(), pa.bool_(), pa.timestamp("us"), _ZONED)
_WORDS = {
    pa.int64(): "a whole number",
    pa.float64(): "a number",
    pa.bool_(): "true or false",
    pa.timestamp("us"): "a time",
    _ZONED: "a time with its zone",
}


def lines_of(source: IO[bytes]) -> Iterator[str]:
    """Yield the lines of a file with their ends; raises Unreadable for one without an end."""
    text = io.TextIOWrapper(source, encoding="utf-8-sig", errors="surrogateescape", newline="")
    number = 0
    while line := text.readline(MAX_LINE):
        number += 1
        if len(line) == MAX_LINE and not line.endswith(("\n", "\r")):
            raise Unreadable(f"The line is longer than {MAX_LINE // 1024**2} MiB.", number)
        if "\0" in line:
            raise Unreadable("The line holds a NUL character, so this is no text.", number)
        yield line
    text.detach()


def read_csv(source: IO[bytes], *, path: str, table: Table, until: float) -> None:
    """Read one CSV file, whose first line names the columns; raises Unreadable."""
    lines = lines_of(source)
    first = next(lines, "")
    separator = max(",;\t|", key=first.count) if first else ","
    reader = csv.reader(_with_first(first, lines), delimiter=separator, strict=True)
    try:
        names = _names(next(reader, []))
        batch = _CsvBatch(table, path, names)
        for row in reader:
            if not row:
                continue
            if len(row) != len(names):
                table.complain(
                    path,
                    f"{len(row)} values stand in this row; the header names {len(names)} columns.",
                    line=reader.line_num,
                    column=None if len(row) > len(names) else names[len(row)],
                )
                continue
            batch.add(row, reader.line_num)
            if batch.is_full:
                batch.flush()
                if time.monotonic() > until:
                    table.is_complete = False
                    return
        batch.flush()
    except csv.Error as error:
        raise Unreadable(f"This is not CSV: {error}.", reader.line_num) from error


def _with_first(first: str, lines: Iterator[str]) -> Iterator[str]:
    yield first
    yield from lines


def _names(header: list[str]) -> list[str]:
    names = [_clean(name.strip()) or f"column_{at}" for at, name in enumerate(header, start=1)]
    if not names:
        raise Unreadable("It is empty; the first line of a CSV file names its columns.", 1)
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise Unreadable(f"The header names the column {twice[:100]} twice.", 1)
    return names


def _clean(text: str) -> str:
    """Return text as UTF-8 can carry it: neither bytes that are none nor half a surrogate pair."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class _CsvBatch:
    """Rows on their way into a table."""

    def __init__(self, table: Table, path: str, names: list[str]) -> None:
        self._table, self._path, self._names = table, path, names
        self._rows: list[list[str]] = []
        self._lines: list[int] = []
        self._characters = 0

    @property
    def is_full(self) -> bool:
        return len(self._rows) >= _BATCH_ROWS or self._characters >= _BATCH_CHARACTERS

    def add(self, row: list[str], line: int) -> None:
        self._rows.append(row)
        self._lines.append(line)
        self._characters += sum(map(len, row))

    def flush(self) -> None:
        """Type the rows and hand them on; the first ones decide what a column holds."""
        texts = [self._texts(at, column) for at, column in enumerate(self._columns())]
        known = self._table.columns
        types = {
            name: known[name].type if name in known else _type_of(some)
            for name, some in zip(self._names, texts, strict=True)
        }
        self._table.begin(types)
        self._table.add(
            [self._typed(name, some) for name, some in zip(self._names, texts, strict=True)]
        )
        self._rows, self._lines, self._characters = [], [], 0

    def _columns(self) -> list[tuple[str, ...]]:
        return list(zip(*self._rows, strict=True)) or [()] * len(self._names)

    def _texts(self, at: int, values: tuple[str, ...]) -> Any:
        try:
            found = pa.array(values, pa.string())
        except UnicodeEncodeError:
            for row, value in enumerate(values):
                if not _is_utf8(value):
                    self._table.complain(
                        self._path,
                        "The value is not UTF-8.",
                        line=self._lines[row],
                        column=self._names[at],
                    )
            found = pa.array([_clean(value) for value in values], pa.string())
        trimmed = pc.utf8_trim_whitespace(found)
        is_missing = pc.is_in(trimmed, value_set=_MISSING)
        return pc.if_else(is_missing, pa.scalar(None, pa.string()), trimmed)

    def _typed(self, name: str, texts: Any) -> Any:
        column = self._table.columns[name]
        found = cast_or_none(texts, column.type)
        if found is None and column.type == pa.int64():
            found = cast_or_none(texts, pa.float64())
            if found is not None:
                column.type = pa.float64()
        if found is not None:
            return found
        bad = misfits(texts, column.type, limit=_MOST_BAD_IN_A_BATCH)
        for row in bad:
            self._table.mixed.add(name)
            self._table.complain(
                self._path,
                f"{texts[row].as_py()[:80]!r} is not {_WORDS.get(column.type, column.type)}, "
                "as the values above it are.",
                line=self._lines[row],
                column=name,
            )
        mask = [False] * len(texts)
        for row in bad:
            mask[row] = True
        kept = pc.if_else(pa.array(mask), pa.scalar(None, pa.string()), texts)
        typed = cast_or_none(kept, column.type)
        return typed if typed is not None else pa.nulls(len(texts), column.type)


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _type_of(texts: Any) -> Any:
    if texts.null_count == len(texts):
        return pa.string()
    fitting = (kind for kind in _CANDIDATES if cast_or_none(texts, kind) is not None)
    return next(fitting, pa.string())


def read_json_lines(source: IO[bytes], *, path: str, table: Table, until: float) -> None:
    """Read one file of JSON lines, an object each; raises Unreadable."""
    batch = _JsonBatch(table, path)
    number = 0
    for number, line in enumerate(lines_of(source), start=1):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
        except json.JSONDecodeError as error:
            table.complain(
                path,
                f"This is not JSON: {error.msg} at character {error.colno}.",
                line=number,
                column=None,
            )
            continue
        except (RecursionError, ValueError):
            table.complain(path, "This is nested too deeply, or no JSON.", line=number)
            continue
        if not isinstance(found, dict):
            table.complain(path, "This is no object with named values.", line=number)
            continue
        if "\\u" in line or not line.isascii():
            found = {_clean(name): value for name, value in found.items()}
        batch.add(found, number, len(line))
        if batch.is_full:
            batch.flush()
            if time.monotonic() > until:
                table.is_complete = False
                return
    batch.flush()


class _JsonBatch:
    """Objects on their way into a table."""

    def __init__(self, table: Table, path: str) -> None:
        self._table, self._path = table, path
        self._rows: list[tuple[dict[str, Any], int]] = []
        self._characters = 0

    @property
    def is_full(self) -> bool:
        return len(self._rows) >= _BATCH_ROWS or self._characters >= _BATCH_CHARACTERS

    def add(self, row: dict[str, Any], line: int, characters: int) -> None:
        self._rows.append((row, line))
        self._characters += characters

    def flush(self) -> None:
        """Type the rows and hand them on; names that come later than the first are left out."""
        if not self._rows:
            return
        if not self._table.columns:
            names = list(dict.fromkeys(name for row, _line in self._rows for name in row))
            self._table.begin({name: self._type_of(name) for name in names})
        columns = self._table.columns
        for row, line in self._rows:
            for name in row.keys() - columns.keys():
                self._table.complain(
                    self._path, "No row above has this name.", line=line, column=_clean(name)
                )
        self._table.add([self._typed(name) for name in columns])
        self._rows, self._characters = [], 0

    def _type_of(self, name: str) -> Any:
        found = (_json_kind(row.get(name)) for row, _line in self._rows)
        kinds = {kind for kind in found if kind is not None}
        if kinds == {int, float}:
            kinds = {float}
        return _JSON_TYPES[kinds.pop()] if len(kinds) == 1 else pa.string()

    def _typed(self, name: str) -> Any:
        column = self._table.columns[name]
        fits = _fitting(column.type)
        values: list[Any] = []
        for row, line in self._rows:
            value = row.get(name)
            if value is None:
                values.append(None)
                continue
            if isinstance(value, float) and column.type == pa.int64():
                column.type, fits = pa.float64(), _as_float
            typed: Any = fits(value)
            if typed is None:
                self._table.mixed.add(name)
                words = _WORDS.get(column.type, "text")
                self._table.complain(
                    self._path,
                    f"{str(value)[:80]!r} is not {words}, as the values above it are.",
                    line=line,
                    column=name,
                )
            values.append(typed)
        if column.type == pa.float64():
            values = [None if value is None else float(value) for value in values]
        return pa.array(values, column.type)


def _fitting(kind: Any) -> Callable[[Any], Any]:
    return _FITS.get(kind, _as_text)


def _json_kind(value: object) -> type | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return bool
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return float
    return type(value) if isinstance(value, int | float) else str


def _as_text(value: Any) -> str:
    return _clean(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _as_float(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def _as_int(value: Any) -> int | None:
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    return value if is_whole and -(2**63) <= value < 2**63 else None


def _as_bool(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


_JSON_TYPES = {bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string()}
_FITS: dict[Any, Callable[[Any], Any]] = {
    pa.bool_(): _as_bool,
    pa.int64(): _as_int,
    pa.float64(): _as_float,
}
