"""Tables as record batches of one schema: CSV, JSON lines, Parquet, ORC and Excel."""

import base64
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import IO, Any

import pyarrow as pa

from slipway.schemas.datasets import TableProblem
from slipway.schemas.tables import (
    MAX_COLUMNS,
    MISSING_WORDS,
    ReadSettings,
    TableColumn,
    TableSchema,
    partition_values,
)
from slipway.schemas.truncation import join_names, shorten, shorten_name
from slipway.tables.columns import Column
from slipway.tables.compression import open_compressed
from slipway.tables.csv_files import CsvFile, TextBatch
from slipway.tables.errors import Unreadable
from slipway.tables.excel_files import CellBatch, ExcelFile
from slipway.tables.json_lines import JsonFile, ObjectBatch
from slipway.tables.orc_files import OrcFile
from slipway.tables.parquet_files import ParquetFile
from slipway.tables.partitions import partition_columns

_MOST_NOTES = 20


class TableReader:
    """Reads the files of one table, one after the other.

    With the `schema` of an earlier pass the types are final, and rows that do not fit are bad: they
    are left out and reported. Without it types are inferred from the first rows, and may widen
    while it reads. `is_stale` then says that the batches so far have another schema than the table,
    and that the files have to be read again with it.

    `partitions` are the columns that the names of folders hold, with all of their values. The
    columns of a schema take their place.
    """

    def __init__(
        self,
        settings: ReadSettings,
        *,
        schema: TableSchema | None = None,
        partitions: Mapping[str, Sequence[str | None]] | None = None,
        on_problem: Callable[[TableProblem], None],
    ) -> None:
        self._settings = settings
        self._on_problem = on_problem
        self._is_settled = schema is not None
        self._columns: dict[str, Column] = {}
        self._partitions = partition_columns(partitions or {}, settings)
        self._values: dict[str, str | None] = {}
        self._yielded = False
        self._first_path = ""
        self._notes: list[str] = []
        self.encoding = self.separator = ""
        self.is_stale = False
        self.is_complete = True
        self.rows = self.bad_rows = 0
        self._line_of: Callable[[int], int] | None = None
        self._places: list[int] | None = None
        if schema is not None:
            self._columns = {
                field.name: Column(field.name, settings, field.type) for field in _fields(schema)
            }
            notes = {column.name: column.note for column in schema.columns}
            for column in self._columns.values():
                column.note = notes.get(column.name, "")
            self._partitions = {name: self._columns.pop(name) for name in schema.partitions}

    @property
    def arrow_schema(self) -> Any:
        """The schema as it is known so far."""
        columns = {**self._columns, **self._partitions}
        return pa.schema([(name, column.arrow_type) for name, column in columns.items()])

    def schema(self) -> TableSchema:
        """Return the schema to store with the table."""
        settings, arrow = self._settings, self.arrow_schema
        words = list(MISSING_WORDS) if settings.missing is None else settings.missing
        is_text = bool(self.encoding)
        return TableSchema(
            columns=[
                TableColumn(name=column.name, type=str(column.arrow_type), note=column.note)
                for column in (*self._columns.values(), *self._partitions.values())
            ],
            arrow=base64.b64encode(arrow.serialize().to_pybytes()).decode(),
            settings=settings,
            missing=["", *words] if self.separator else [],
            missing_in_text=([""] if settings.missing is None else words) if self.separator else [],
            encoding=self.encoding if is_text else "",
            separator=self.separator,
            partitions=list(self._partitions),
            notes=_limit_notes(self._notes),
            is_complete=self.is_complete,
        )

    def read(self, source: IO[bytes], *, path: str, format: str) -> Iterator[Any]:  # noqa: A002
        """Yield the record batches of one file. Unreadable parts are reported."""
        readers = {
            "csv": self._csv,
            "jsonl": self._json_lines,
            "parquet": self._parquet,
            "orc": self._orc,
            "xlsx": self._excel,
        }
        try:
            self._values = self._partition_values(path)
            yield from readers[format](open_compressed(source, path), path)
        except Unreadable as error:
            self.report(path, error.message, line=error.line)
        except MemoryError:
            self.is_complete = False
            self.report(path, "Reading it takes more memory than there is.")

    def line_of(self, row: int) -> int | None:
        """Return the line of a row of the newest batch, None in a format without lines."""
        if self._line_of is None:
            return None
        return self._line_of(self._places[row] if self._places is not None else row)

    def report(
        self, path: str, message: str, *, line: int | None = None, column: str | None = None
    ) -> None:
        """Count and report a bad row."""
        self.bad_rows += 1
        self._report(path, message, line, column)

    def _report(self, path: str, message: str, line: int | None, column: str | None) -> None:
        self._on_problem(
            TableProblem(
                path=path,
                line=line,
                column=column and _clean(shorten(column, 200)),
                message=_clean(shorten(message, 400)),
            )
        )

    def _csv(self, source: IO[bytes], path: str) -> Iterator[Any]:
        file = CsvFile(
            source,
            path=path,
            settings=self._settings,
            on_bad_row=lambda line, column, message: self.report(
                path, message, line=line, column=column
            ),
        )
        self.encoding = self.encoding or file.encoding
        self.separator = self.separator or file.separator
        self._notes += [note for note in file.notes if note not in self._notes]
        self._create_columns(file.names, path)
        places = [file.names.index(name) for name in self._columns]
        for batch in file.batches():
            yield self._batch(path, batch.line_of, self._csv_arrays(batch, places))
        if not self._yielded:
            yield self._batch(path, int, lambda column, on_bad: pa.array([], column.arrow_type))

    def _csv_arrays(self, batch: TextBatch, places: list[int]) -> Callable[..., Any]:
        texts = {name: batch.columns[at] for name, at in zip(self._columns, places, strict=True)}
        return lambda column, on_bad: column.from_texts(texts[column.name], on_bad)

    def _json_lines(self, source: IO[bytes], path: str) -> Iterator[Any]:
        file = JsonFile(
            source,
            settings=self._settings,
            on_bad_row=lambda line, column, message: self.report(
                path, message, line=line, column=column
            ),
        )
        self.encoding = self.encoding or file.encoding
        for batch in file.batches():
            if self._partitions:
                self._require_no_partition({name for row in batch.rows for name in row})
            self._add_names(batch)
            yield self._batch(
                path,
                batch.lines.__getitem__,
                lambda column, on_bad, rows=batch.rows: column.from_values(
                    [row.get(column.name) for row in rows], on_bad
                ),
            )

    def _add_names(self, batch: ObjectBatch) -> None:
        """Add columns for new names: earlier rows have no value there."""
        if self._is_settled:
            return
        names = dict.fromkeys(name for row in batch.rows for name in row)
        fresh = [name for name in names if name not in self._columns]
        if len(self._columns) + len(fresh) > MAX_COLUMNS:
            raise _too_many(len(self._columns) + len(fresh))
        for name in fresh:
            self._columns[name] = Column(name, self._settings, None)
            self.is_stale = self.is_stale or self._yielded

    def _parquet(self, source: IO[bytes], path: str) -> Iterator[Any]:
        yield from self._arrow(ParquetFile(source), path)

    def _orc(self, source: IO[bytes], path: str) -> Iterator[Any]:
        yield from self._arrow(OrcFile(source), path)

    def _arrow(self, file: ParquetFile | OrcFile, path: str) -> Iterator[Any]:
        self._create_columns(file.schema.names, path)
        for name, column in self._columns.items():
            self._widen(column, file.schema.field(name).type, path)
        for first, batch in file.batches():
            arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
            yield self._batch(
                path,
                None,
                lambda column, on_bad, arrays=arrays: column.from_array(
                    arrays[column.name], on_bad
                ),
                first_row=first,
                rows=batch.num_rows,
            )
        if not self._yielded:
            yield self._batch(path, None, lambda column, on_bad: pa.array([], column.type))

    def _excel(self, source: IO[bytes], path: str) -> Iterator[Any]:
        file = ExcelFile(
            source,
            settings=self._settings,
            on_bad_row=lambda line, column, message: self.report(
                path, message, line=line or None, column=column
            ),
        )
        self._notes += [note for note in file.notes if note not in self._notes]
        self._create_columns(file.names, path)
        for batch in file.batches():
            yield self._batch(path, batch.lines.__getitem__, self._excel_arrays(batch, file.names))
        if not self._yielded:
            yield self._batch(path, int, lambda column, on_bad: pa.array([], column.arrow_type))

    def _excel_arrays(self, batch: CellBatch, names: list[str]) -> Callable[..., Any]:
        cells = dict(zip(names, zip(batch.texts, batch.kinds, strict=True), strict=True))
        return lambda column, on_bad: column.from_cells(*cells[column.name], on_bad)

    def _widen(self, column: Column, kind: Any, path: str) -> None:
        """Give a column the type of a further part, or one that holds both."""
        if column.is_settled or column.type == kind:
            return
        if column.type is None:
            column.type = kind
            return
        try:
            fields = [pa.schema([(column.name, each)]) for each in (column.type, kind)]
            wider = pa.unify_schemas(fields, promote_options="permissive").field(0).type
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise Unreadable(
                f"The column {shorten(column.name, 120)} has the type {kind} here and "
                f"{column.type} in "
                f"{shorten(self._first_path, 120)}. Write it with one type."
            ) from error
        if wider != column.type:
            column.type = wider
            self.is_stale = self.is_stale or self._yielded

    def _create_columns(self, names: list[str], path: str) -> None:
        """Create the columns, or raise Unreadable if there are too many or they changed."""
        if len(names) > MAX_COLUMNS:
            raise _too_many(len(names))
        self._require_no_partition(names)
        if not self._columns:
            self._columns = {name: Column(name, self._settings, None) for name in names}
        self._first_path = self._first_path or path
        if set(names) != set(self._columns):
            missing = [name for name in self._columns if name not in names]
            further = [name for name in names if name not in self._columns]
            parts = [
                f"{word} {join_names([shorten_name(name, 100) for name in some], 5)}"
                for word, some in (("it has no", missing), ("only it has", further))
                if some
            ]
            raise Unreadable(
                "It has other columns than the parts of the table before it: "
                f"{'; '.join(parts)}. Name its file differently to make it a table of its own.",
                1,
            )

    def _require_no_partition(self, names: Collection[str]) -> None:
        """Raise Unreadable where a file has a column that its folders name, too."""
        twice = next((name for name in self._partitions if name in names), None)
        if twice is not None:
            raise Unreadable(
                f"The column {shorten(twice, 120)} is in the file and in the name of its folder. "
                "Rename "
                "the folder or leave the column out of the file."
            )

    def _partition_values(self, path: str) -> dict[str, str | None]:
        if not self._partitions:
            return {}
        try:
            return partition_values(path)
        except ValueError as error:
            raise Unreadable(str(error)) from error

    def _partition_arrays(self, rows: int) -> list[Any]:
        arrays = []
        for name, column in self._partitions.items():
            value = column.from_texts(
                pa.array([self._values.get(name)], pa.string()), self._refuse_partition
            )
            arrays.append(pa.repeat(value[0], rows))
        return arrays

    def _refuse_partition(self, row: int, message: str) -> None:
        raise Unreadable(f"The name of its folder: {message}")

    def _batch(
        self,
        path: str,
        line_of: Callable[[int], int] | None,
        values: Callable[..., Any],
        *,
        first_row: int = 1,
        rows: int | None = None,
    ) -> Any:
        """Return a batch of all columns without the rows that have a bad value."""
        bad: dict[int, list[tuple[str, str]]] = {}
        before = {name: column.type for name, column in self._columns.items()}
        arrays = []
        for name, column in self._columns.items():
            arrays.append(
                values(
                    column,
                    lambda row, message, name=name: bad.setdefault(row, []).append((name, message)),
                )
            )
        if self._yielded and not self._is_settled:
            now = {name: column.type for name, column in self._columns.items()}
            self.is_stale = self.is_stale or before != now
        for row in sorted(bad):
            self.bad_rows += 1
            for name, message in bad[row]:
                if line_of is None:
                    self._report(path, f"Row {first_row + row}: {message}", None, name)
                else:
                    self._report(path, message, line_of(row), name)
        arrays += self._partition_arrays(len(arrays[0]) if arrays else rows or 0)
        batch = pa.RecordBatch.from_arrays(arrays, schema=self.arrow_schema)
        self._line_of, self._places = line_of, None
        if bad:
            kept = [row for row in range(batch.num_rows) if row not in bad]
            self._places = kept
            batch = batch.take(pa.array(kept, pa.int64()))
        self._yielded = True
        self.rows += batch.num_rows
        return batch


def _too_many(count: int) -> Unreadable:
    return Unreadable(f"It has {count:,} columns; a table has at most {MAX_COLUMNS:,}.", 1)


def _fields(schema: TableSchema) -> Any:
    if not schema.arrow:
        return []
    return pa.ipc.read_schema(pa.BufferReader(base64.b64decode(schema.arrow)))


def _limit_notes(notes: Sequence[str]) -> list[str]:
    if len(notes) <= _MOST_NOTES:
        return [*notes]
    return [*notes[: _MOST_NOTES - 1], f"{len(notes) - _MOST_NOTES + 1} more notes."]


def _clean(text: str) -> str:
    """Return text as UTF-8 can carry it: neither bytes that are none nor half a surrogate pair."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
