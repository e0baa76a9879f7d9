"""CSV files as columns of text, each row with its line.

Blocks of plain text, in which each quote opens or closes a value, are split by Arrow. From the
first other block on, a file goes through the parser of the standard library, which is slower and
gives the same values. Which of the two is used depends on the bytes alone.
"""

import csv
import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import IO, Any

import pyarrow as pa
from pyarrow import csv as arrow_csv

from slipway.schemas.tables import MAX_ROW_BYTES, ReadSettings
from slipway.schemas.truncation import join_names, shorten
from slipway.tables.errors import Unreadable
from slipway.tables.text_files import CHUNK_BYTES, open_text, require_no_nul

BATCH_ROWS = 10_000
_BATCH_CHARACTERS = 8 * 1024**2
_QUOTED = re.compile(r'"(?:[^"]|"")*"')
_UTF8_ADVICE = (
    "The value is not UTF-8. Declare the encoding of the file, such as latin-1 or utf-16."
)
BadRow = Callable[[int, str | None, str], None]


@dataclass
class TextBatch:
    """Some rows: one array of strings a column, and the line that a row ends at."""

    columns: list[Any]
    line_of: Callable[[int], int]


class CsvFile:
    """One CSV file, whose first line names the columns.

    `on_bad_row` gets the line, the column and the reason of each row that cannot be split. Raises
    Unreadable where nothing after it can be read.
    """

    def __init__(
        self, source: IO[bytes], *, path: str, settings: ReadSettings, on_bad_row: BadRow
    ) -> None:
        self._on_bad_row = on_bad_row
        self.encoding, self._chunks = open_text(source, settings.encoding)
        self._rest = self._header_bytes()
        require_no_nul(self._rest, 1)
        first = self._rest.decode("utf-8", "surrogateescape")
        line = first.lstrip("\r\n").partition("\n")[0]
        self.separator = settings.separator or _separator(line, path)
        header, self._line = self._header(first)
        self.skips_spaces = len(header) > 1 and all(name[:1] == " " for name in header[1:])
        if self.skips_spaces:
            header, self._line = self._header(first)
        self.notes: list[str] = []
        self.names = self._names(header)
        self._rest = self._rest[self._after_lines(self._line) :]

    def _header_bytes(self) -> bytes:
        """Return the first bytes, at least as many as hold the header."""
        first = b""
        for chunk in self._chunks:
            first += chunk
            if len(first) > MAX_ROW_BYTES:
                break
            lines = first.lstrip(b"\r\n")
            end = max(lines.find(b"\n"), lines.find(b"\r"))
            if end > 0 and lines.count(b'"', 0, end) % 2 == 0 and not first.endswith(b"\n"):
                break
        return first

    def _options(self) -> dict[str, Any]:
        spaces = getattr(self, "skips_spaces", False)
        return {"delimiter": self.separator, "strict": True, "skipinitialspace": spaces}

    def _header(self, text: str) -> tuple[list[str], int]:
        reader = csv.reader(io.StringIO(text, newline=""), **self._options())
        try:
            return next((row for row in reader if row), []), reader.line_num
        except csv.Error as error:
            raise Unreadable(f"This is not CSV: {error}.", reader.line_num) from error

    def _names(self, header: list[str]) -> list[str]:
        if not header:
            raise Unreadable("It is empty; the first line of a CSV file names its columns.", 1)
        names = [name.strip() for name in header]
        for name in names:
            if not name.isascii() and _not_utf8(name):
                raise Unreadable(f"In the header: {_UTF8_ADVICE}", 1)
        if len(names) > 1 and not names[-1] and self._ends_with_separator():
            names.pop()
        for at, name in enumerate(names):
            if not name:
                names[at] = f"column_{at + 1}"
                self.notes.append(f"Column {at + 1} has no name; it is called {names[at]}.")
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            places = [str(at) for at, name in enumerate(names, start=1) if name == twice]
            raise Unreadable(
                f"The header names the column {shorten(twice, 120)} twice, in the places "
                f"{join_names(places, 10)}. Rename one of them.",
                1,
            )
        return names

    def _ends_with_separator(self) -> bool:
        """Return whether the first row ends with a separator too, which then ends each row."""
        after = self._after_lines(self._line)
        row = self._rest[after:].lstrip(b"\r\n").partition(b"\n")[0].rstrip(b"\r")
        return not row or row.endswith(self.separator.encode())

    def _after_lines(self, count: int) -> int:
        """Return where so many lines of the first bytes end."""
        lines = io.BytesIO(self._rest)
        text = self._rest
        if b"\r" in text and text.count(b"\r") != text.count(b"\r\n"):
            pattern = re.compile(rb"\r\n|\r|\n")
            ends = pattern.finditer(text)
            end = 0
            for _ in range(count):
                match = next(ends, None)
                end = match.end() if match else len(text)
            return end
        return sum(len(lines.readline()) for _ in range(count))

    def batches(self) -> Iterator[TextBatch]:
        """Yield the rows."""
        if self.skips_spaces:
            yield from self._parse_remaining(self._rest)
            return
        pending = self._rest
        while True:
            chunk = next(self._chunks, b"")
            pending = pending + chunk if chunk else pending
            cut = self._plain_until(pending, is_end=not chunk)
            if cut is None:
                yield from self._parse_remaining(pending)
                return
            block, pending = pending[:cut], pending[cut:]
            if block:
                yield from self._split(block)
            if not chunk:
                return
            if len(pending) > MAX_ROW_BYTES:
                raise _too_long(self._line + 1)

    def _plain_until(self, data: bytes, *, is_end: bool) -> int | None:
        """Return the end of the last complete row, or None where quotes are used oddly."""
        if b"\r" in data and data.count(b"\r") - data.count(b"\r\n") > data.endswith(b"\r"):
            return None
        if b'"' not in data:
            return len(data) if is_end else data.rfind(b"\n") + 1
        parts = data.split(b'"')
        ends = frozenset(self.separator.encode() + b"\r\n")
        outside = parts[0::2]
        last = len(outside) - 1
        for at, part in enumerate(outside):
            if not part:
                continue
            if at and part[0] not in ends:
                return None
            if (at < last or len(parts) % 2 == 0) and part[-1] not in ends:
                return None
        if is_end:
            return len(data) if len(parts) % 2 else None
        after = len(data)
        for at in range(len(parts) - 1, -1, -1):
            before = after - len(parts[at])
            if at % 2 == 0 and (line_end := parts[at].rfind(b"\n")) >= 0:
                return before + line_end + 1
            after = before - 1
        return 0

    def _split(self, block: bytes) -> Iterator[TextBatch]:
        """Yield the rows of a block of whole rows."""
        start = self._line
        require_no_nul(block, start + 1)
        self._line += block.count(b"\n")
        columns = self._by_arrow(block)
        if columns is None:
            text = block.decode("utf-8", "surrogateescape")
            yield from self._rows(io.StringIO(text, newline=""), start)
            return
        lines = _Lines(block, start, len(columns[0]), self._options())
        for at in range(0, len(columns[0]), BATCH_ROWS):
            some = [column.slice(at, BATCH_ROWS) for column in columns]
            yield TextBatch(some, lambda row, at=at: lines.of(at + row))  # type: ignore[misc]

    def _by_arrow(self, block: bytes) -> list[Any] | None:
        """Return the columns of a block, None where a row has too few or too many values."""
        if not block.strip(b"\r\n"):
            return [pa.array([], pa.string()) for _name in self.names]
        names = [str(at) for at in range(len(self.names))]
        odd: list[int] = []

        def skip(row: Any) -> str:
            odd.append(row.actual_columns)
            return "skip"

        try:
            table = arrow_csv.read_csv(
                pa.BufferReader(block),
                read_options=arrow_csv.ReadOptions(
                    column_names=names, use_threads=False, block_size=len(block) + 1
                ),
                parse_options=arrow_csv.ParseOptions(
                    delimiter=self.separator, newlines_in_values=True, invalid_row_handler=skip
                ),
                convert_options=arrow_csv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.string()),
                    null_values=[],
                    strings_can_be_null=False,
                ),
            )
        except pa.ArrowInvalid:
            return None
        if odd:
            return None
        return [column.combine_chunks() for column in table.combine_chunks().columns]

    def _parse_remaining(self, begin: bytes) -> Iterator[TextBatch]:
        """Yield all remaining rows, by the parser of the standard library."""
        joined = io.BufferedReader(_ChainedFile(begin, self._chunks), CHUNK_BYTES)
        text = io.TextIOWrapper(joined, encoding="utf-8", errors="surrogateescape", newline="")
        yield from self._rows(_lines_of(text, self._line), self._line)

    def _rows(self, lines: Any, start: int) -> Iterator[TextBatch]:
        csv.field_size_limit(max(csv.field_size_limit(), MAX_ROW_BYTES))
        reader = csv.reader(lines, **self._options())
        width = len(self.names)
        rows: list[list[str]] = []
        numbers: list[int] = []
        characters = 0
        try:
            for row in reader:
                if not row:
                    continue
                line = start + reader.line_num
                # A separator at the end of a row does not begin another value.
                if len(row) == width + 1 and not row[-1]:
                    row.pop()
                if len(row) != width:
                    self._on_bad_row(
                        line,
                        None if len(row) > width else self.names[len(row)],
                        f"The row has {len(row)} values; the header names {width} columns.",
                    )
                    continue
                if (wrong := _first_not_utf8(row)) is not None:
                    self._on_bad_row(line, self.names[wrong], _UTF8_ADVICE)
                    continue
                rows.append(row)
                numbers.append(line)
                characters += sum(map(len, row))
                if len(rows) >= BATCH_ROWS or characters >= _BATCH_CHARACTERS:
                    yield _batch_of(rows, numbers)
                    rows, numbers, characters = [], [], 0
        except csv.Error as error:
            if rows:
                yield _batch_of(rows, numbers)
            raise Unreadable(f"This is not CSV: {error}.", start + reader.line_num) from error
        if rows:
            yield _batch_of(rows, numbers)


def _batch_of(rows: list[list[str]], numbers: list[int]) -> TextBatch:
    columns = [pa.array(column, pa.string()) for column in zip(*rows, strict=True)]
    return TextBatch(columns, numbers.__getitem__)


class _Lines:
    """Line numbers of the rows of a block. Determined only for blocks with a bad row."""

    def __init__(self, block: bytes, start: int, rows: int, options: dict[str, Any]) -> None:
        self._block, self._start, self._rows, self._options = block, start, rows, options

    def of(self, row: int) -> int:
        return self._numbers[row] if self._numbers else self._start + row + 1

    @cached_property
    def _numbers(self) -> list[int]:
        """Return the line of each row, or nothing where each row is one line."""
        lines = self._block.count(b"\n") + (not self._block.endswith(b"\n"))
        if lines == self._rows:
            return []
        csv.field_size_limit(max(csv.field_size_limit(), MAX_ROW_BYTES))
        reader = csv.reader(io.StringIO(self._block.decode(), newline=""), **self._options)
        return [self._start + reader.line_num for row in reader if row]


class _ChainedFile(io.RawIOBase):
    """Some bytes, and the chunks after them, as one file."""

    def __init__(self, begin: bytes, chunks: Iterator[bytes]) -> None:
        self._left, self._chunks = begin, chunks

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._left:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._left = chunk
        taken = self._left[: len(buffer)]
        buffer[: len(taken)] = taken
        self._left = self._left[len(taken) :]
        return len(taken)


def _lines_of(text: io.TextIOWrapper, start: int) -> Iterator[str]:
    number = start
    while line := text.readline(MAX_ROW_BYTES):
        number += 1
        if len(line) == MAX_ROW_BYTES and not line.endswith(("\n", "\r")):
            raise _too_long(number)
        if "\0" in line:
            require_no_nul(b"\0", number)
        yield line


def _too_long(line: int) -> Unreadable:
    return Unreadable(
        f"The row is longer than {MAX_ROW_BYTES // 1024**2} MiB. Keep such values in files of "
        "their own, and their names in the table.",
        line,
    )


def _separator(header: str, path: str) -> str:
    bare = _QUOTED.sub("", header)
    if path.lower().endswith(".tsv") and "\t" in bare:
        return "\t"
    return max(",;\t|", key=bare.count)


def _not_utf8(text: str) -> bool:
    return any("\udc80" <= character <= "\udcff" for character in text)


def _first_not_utf8(row: list[str]) -> int | None:
    return next((at for at, text in enumerate(row) if not text.isascii() and _not_utf8(text)), None)
