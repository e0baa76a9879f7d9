"""Sheets of Excel workbooks (.xlsx) as columns of cells, each row with its number.

Numbers are the digits that the file holds. Formulas count by the value that was saved with them.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import IO, Any

import pyarrow as pa

from slipway.schemas.tables import MAX_COLUMNS, MAX_ROW_BYTES, ReadSettings
from slipway.schemas.truncation import join_names, shorten
from slipway.tables.errors import Unreadable
from slipway.tables.excel_package import Handler, Package, Sheet, unescaped
from slipway.tables.parquet_files import seekable

BATCH_ROWS = 10_000
_REFERENCE = re.compile(r"\A([A-Z]{1,3})([1-9][0-9]{0,7})\Z")
_NUMBER = re.compile(r"\A-?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]{1,3})?\Z|\A-?\.[0-9]+\Z")
_DAY_US = 86_400_000_000
_LAST_DAY = 2_958_466
BadRow = Callable[[int, str | None, str], None]
Cell = tuple[str, str]


@dataclass
class CellBatch:
    """Some rows: the texts of the cells of each column, their kinds, and the row numbers."""

    texts: list[Any]
    kinds: list[Any]
    lines: list[int]


@dataclass
class _Row:
    number: int
    cells: dict[int, Cell] = field(default_factory=dict)
    faults: list[tuple[int, str]] = field(default_factory=list)


class ExcelFile:
    """One sheet of a workbook, whose first row with values names the columns.

    `on_bad_row` gets the row, the column and the reason of each row that cannot be read, and of
    merged cells. Raises Unreadable.
    """

    def __init__(self, source: IO[bytes], *, settings: ReadSettings, on_bad_row: BadRow) -> None:
        self._on_bad_row = on_bad_row
        self._package = Package(seekable(source))
        self._strings = self._package.strings()
        self._formats = self._package.formats()
        self.notes: list[str] = []
        self._sheet = self._choose(settings.sheet)
        self._merged: list[str] = []
        self._rows = self._read_rows(self._sheet, self._merged)
        header = next(self._rows, None)
        if header is None:
            raise Unreadable(f"The sheet {shorten(self._sheet.name, 120)} is empty.", 1)
        if header.faults:
            raise Unreadable(f"In the header: {header.faults[0][1]}", header.number)
        self._first = min(header.cells)
        self.names = self._names(header)

    def _choose(self, declared: str | None) -> Sheet:
        sheets = self._package.sheets
        names = join_names([shorten(sheet.name, 120) for sheet in sheets], 20) or "none"
        if declared is not None:
            chosen = next((sheet for sheet in sheets if sheet.name == declared), None)
            if chosen is None:
                raise Unreadable(
                    f"It has no sheet {shorten(declared, 120)}. Its sheets are: {names}."
                )
        else:
            filled = [
                sheet
                for sheet in sheets
                if not sheet.is_hidden and next(self._read_rows(sheet, []), None) is not None
            ]
            if len(filled) != 1:
                raise Unreadable(
                    f"{len(filled) or 'None'} of its visible sheets have values. Declare the one "
                    f"to read (sheet). Its sheets are: {names}."
                )
            chosen = filled[0]
        if len(sheets) > 1:
            self.notes.append(f"Sheet {shorten(chosen.name, 120)} of: {names}.")
        return chosen

    def _names(self, header: _Row) -> list[str]:
        last = max(header.cells)
        if last - self._first >= MAX_COLUMNS:
            raise Unreadable(f"A table has at most {MAX_COLUMNS:,} columns.", header.number)
        names = []
        for at in range(self._first, last + 1):
            name = header.cells.get(at, ("", ""))[0].strip()
            if not name:
                name = f"column_{at - self._first + 1}"
                self.notes.append(f"Column {_letters(at)} has no name; it is called {name}.")
            names.append(name)
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            places = [_letters(self._first + at) for at, name in enumerate(names) if name == twice]
            raise Unreadable(
                f"The header names the column {shorten(twice, 120)} twice, in the columns "
                f"{join_names(places, 10)}. Rename one of them.",
                header.number,
            )
        return names

    def batches(self) -> Iterator[CellBatch]:
        """Yield the rows with values, or raise Unreadable where the rest cannot be read."""
        rows: list[_Row] = []
        for row in self._rows:
            outside = next(
                (at for at in row.cells if not 0 <= at - self._first < len(self.names)), None
            )
            if outside is not None:
                row.faults.append(
                    (
                        outside,
                        f"The cell {_letters(outside)}{row.number} is in a column without a name.",
                    )
                )
            for at, message in row.faults[:1]:
                place = at - self._first
                name = self.names[place] if 0 <= place < len(self.names) else None
                self._on_bad_row(row.number, name, message)
            if not row.faults:
                rows.append(row)
            if len(rows) >= BATCH_ROWS:
                yield self._batch(rows)
                rows = []
        if rows:
            yield self._batch(rows)
        if self._merged:
            self._on_bad_row(
                0,
                None,
                f"Cells are merged: {join_names(self._merged, 5)}. Only the first cell of "
                "each has the value. Separate them in Excel.",
            )

    def _batch(self, rows: list[_Row]) -> CellBatch:
        texts, kinds = [], []
        for at in range(self._first, self._first + len(self.names)):
            cells = [row.cells.get(at, (None, None)) for row in rows]
            texts.append(pa.array([text for text, _kind in cells], pa.string()))
            kinds.append(pa.array([kind for _text, kind in cells], pa.string()))
        return CellBatch(texts, kinds, [row.number for row in rows])

    def _read_rows(self, sheet: Sheet, merged: list[str]) -> Iterator[_Row]:
        """Yield the rows of a sheet that have a value or a fault."""
        handler = _SheetHandler(self._value, merged)
        for _piece in self._package.parse(sheet.path, handler):
            yield from handler.rows
            handler.rows.clear()

    def _value(self, kind: str, style: int, text: str | None, has_formula: bool) -> Cell | None:
        """Return the text and the kind of a cell, None for an empty one, or raise ValueError."""
        if kind in ("str", "inlineStr"):
            return (unescaped(text), "text") if text else None
        if text is None or not text.strip():
            if has_formula:
                raise ValueError(
                    "is a formula without a saved value. Open the workbook in Excel and save it"
                )
            return None
        text = text.strip()
        if kind == "s":
            if not text.isdigit() or int(text) >= len(self._strings):
                raise ValueError("names a text that is not in the workbook")
            shared = self._strings[int(text)]
            return (shared, "text") if shared else None
        if kind == "b":
            return "true" if text in ("1", "true") else "false", "boolean"
        if kind == "e":
            if text == "#N/A":
                return text, "text"
            raise ValueError(f"holds the error {shorten(text, 120)}")
        if kind == "d":
            return text.replace("T", " "), "date"
        if _NUMBER.match(text) is None:
            raise ValueError(f"holds {shorten(text, 120)!r}, which is no number")
        format_ = self._formats[style] if 0 <= style < len(self._formats) else "number"
        if format_ == "number":
            return text, "number"
        return _date(text, format_, is_1904=self._package.is_1904)


class _SheetHandler(Handler):
    """Collects the rows of a sheet and the ranges that are merged in it."""

    def __init__(
        self, value: Callable[[str, int, str | None, bool], Cell | None], merged: list[str]
    ) -> None:
        super().__init__()
        self.rows: list[_Row] = []
        self._value = value
        self._merged = merged
        self._row = _Row(0)
        self._at = -1
        self._kind, self._style = "n", 0
        self._parts: list[str] = []
        self._size = 0
        self._has_text = self._is_value = self._is_phonetic = self._has_formula = False

    def start(self, name: str, attributes: dict[str, str]) -> None:
        local = name.rpartition(" ")[2]
        if local == "c":
            self._start_cell(attributes)
        elif local == "v" or (local == "t" and not self._is_phonetic):
            self._is_value = self._has_text = True
        elif local == "f":
            self._has_formula = True
        elif local == "row":
            number = attributes.get("r", "")
            self._row = _Row(int(number) if number.isdigit() else self._row.number + 1)
            self._at, self._size = -1, 0
        elif local == "rPh":
            self._is_phonetic = True
        elif local == "mergeCell":
            self._merged.append(attributes.get("ref", "?")[:40])

    def _start_cell(self, attributes: dict[str, str]) -> None:
        match = _REFERENCE.match(attributes.get("r", ""))
        self._at = _index(match[1]) if match else self._at + 1
        self._kind = attributes.get("t", "n")
        style = attributes.get("s", "0")
        self._style = int(style) if style.isdigit() else 0
        self._parts = []
        self._has_text = self._has_formula = False

    def end(self, name: str) -> None:
        local = name.rpartition(" ")[2]
        if local in ("v", "t"):
            self._is_value = False
        elif local == "rPh":
            self._is_phonetic = False
        elif local == "c":
            self._end_cell()
        elif local == "row" and (self._row.cells or self._row.faults):
            self.rows.append(self._row)

    def _end_cell(self) -> None:
        text = "".join(self._parts) if self._has_text else None
        try:
            cell = self._value(self._kind, self._style, text, self._has_formula)
        except ValueError as error:
            place = f"{_letters(self._at)}{self._row.number}"
            if not self._row.faults:
                self._row.faults.append((self._at, f"The cell {place} {error}."))
        else:
            if cell is not None:
                self._row.cells[self._at] = cell

    def text(self, text: str) -> None:
        if self._is_value:
            self._parts.append(text)
            self._size += len(text)
            if self._size > MAX_ROW_BYTES:
                raise Unreadable(
                    f"The row is longer than {MAX_ROW_BYTES // 1024**2} MiB.", self._row.number
                )


def _date(text: str, format_: str, *, is_1904: bool) -> Cell:
    """Return the text of a number that is formatted as a date, a time or a duration.

    Excel counts days, and writes times to the millisecond. Raises ValueError for no day.
    """
    days = Decimal(text)
    us = round(days * _DAY_US)
    nearest_ms = round(us / 1000) * 1000
    # 15 to 17 digits are exact to milliseconds. The later the day, the less to microseconds.
    last_digit_us = Decimal(1).scaleb(int(days.as_tuple().exponent)) * _DAY_US
    if abs(us - nearest_ms) <= min(max(int(last_digit_us), 1), 100):
        us = nearest_ms
    if format_ == "duration" or (format_ == "time" and 0 <= us < _DAY_US):
        if us < 0:
            raise ValueError("holds a negative time")
        minutes, rest = divmod(us, 60_000_000)
        seconds, fraction = divmod(rest, 1_000_000)
        clock = f"{minutes // 60:02}:{minutes % 60:02}:{seconds:02}"
        return clock + (f".{fraction:06}" if fraction else ""), "time"
    day = us // _DAY_US
    if not is_1904 and (day < 1 or day == 60):
        raise ValueError(
            f"is formatted as a date, and Excel's day {shorten(text, 120)} does not exist"
        )
    if day < 0 or day >= _LAST_DAY - (1462 if is_1904 else 0):
        raise ValueError(
            f"is formatted as a date, and Excel's day {shorten(text, 120)} does not exist"
        )
    # Excel has a 29 February 1900, day 60, as Lotus 1-2-3 had.
    start = datetime(1904, 1, 1) if is_1904 else datetime(1899, 12, 30 if day > 60 else 31)  # noqa: DTZ001
    time = start + timedelta(microseconds=us)
    return time.isoformat(" ") if us % _DAY_US else time.date().isoformat(), "date"


def _index(letters: str) -> int:
    index = 0
    for letter in letters:
        index = index * 26 + ord(letter) - 64
    return index - 1


def _letters(index: int) -> str:
    letters, index = "", index + 1
    while index:
        index, rest = divmod(index - 1, 26)
        letters = chr(65 + rest) + letters
    return letters
