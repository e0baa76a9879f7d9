"""The output of a batch prediction: rows spooled to a file, then written as one Parquet file.

The types of predictions are known only after the last row, and Parquet needs them before the first.
So rows wait in an Arrow file on disk, with their predictions as JSON. Neither pass holds more than
a part of the table in memory.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from slipway.schemas.batch_predictions import ERROR, PREDICTION
from workers.batch_predictor.predictor import RowResult

_ROWS_IN_A_GROUP: Final = 64_000
_BYTES_IN_A_GROUP: Final = 64 * 1024**2


class NameTaken(Exception):
    """A column of the table has the name of a column of predictions."""


class _ColumnType:
    """The type of a column of predictions, widened by each batch. JSON text if there is none."""

    def __init__(self) -> None:
        self.type: Any = pa.null()
        self.is_text = False

    def widen(self, values: Sequence[Any]) -> None:
        if self.is_text:
            return
        try:
            kind = pa.array(values).type
            fields = [pa.schema([("value", part)]) for part in (self.type, kind)]
            unified = pa.unify_schemas(fields, promote_options="permissive")
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            self.is_text = True
            return
        self.type = unified.field("value").type

    def array(self, values: Sequence[Any]) -> Any:
        if self.is_text:
            return pa.array([_as_text(value) for value in values], pa.string())
        kind = pa.string() if pa.types.is_null(self.type) else self.type
        return pa.array(values, kind)


class Spool:
    """Rows and their predictions on disk, until `write` makes them a Parquet file."""

    def __init__(self, path: Path, keep: Sequence[str], *, has_errors: bool) -> None:
        self._path = path
        self._keep = list(keep)
        self._has_errors = has_errors
        self._writer: Any = None
        self._columns: dict[str, _ColumnType] = {}
        self._value = _ColumnType()
        self._has_names = True

    def add(self, rows: Any, results: Sequence[RowResult]) -> None:
        """Add rows with their results."""
        self._learn(results)
        texts = [None if item.error else orjson.dumps(item.prediction) for item in results]
        errors = [item.error or None for item in results]
        batch = pa.RecordBatch.from_arrays(
            [
                *(rows.column(name) for name in self._keep),
                *(pa.array(texts, pa.binary()), pa.array(errors, pa.string())),
            ],
            names=[*map(str, range(len(self._keep))), "texts", "errors"],
        )
        if self._writer is None:
            self._writer = pa.ipc.new_stream(str(self._path), batch.schema)
        self._writer.write_batch(batch)

    def _learn(self, results: Sequence[RowResult]) -> None:
        values = [item.prediction for item in results if not item.error]
        self._value.widen(values)
        self._has_names = self._has_names and all(isinstance(value, dict) for value in values)
        if self._has_names:
            for name in dict.fromkeys(name for value in values for name in value):
                column = self._columns.setdefault(name, _ColumnType())
                column.widen([value.get(name) for value in values])

    def write(self, path: Path) -> None:
        """Write all rows to a Parquet file. Raises NameTaken."""
        self._writer.close()
        names = self._names()
        taken = sorted(set(names) & set(self._keep))
        if taken:
            raise NameTaken(taken[0])
        writer = None
        for table in self._tables(names):
            if writer is None:
                writer = pq.ParquetWriter(str(path), table.schema, compression="zstd")
            writer.write_table(table)
        if writer is not None:
            writer.close()
        self._path.unlink()

    def _names(self) -> list[str]:
        """Return the names of the columns of predictions, with those of errors."""
        predicted = [f"{PREDICTION}_{name}" for name in self._columns]
        names = predicted if self._has_names and self._columns else [PREDICTION]
        return [*names, *([ERROR] if self._has_errors else [])]

    def _tables(self, names: Sequence[str]) -> Iterator[Any]:
        parts: list[Any] = []
        with pa.ipc.open_stream(str(self._path)) as source:
            for batch in source:
                parts.append(self._finished(batch, names))
                full = sum(part.nbytes for part in parts) >= _BYTES_IN_A_GROUP
                if full or sum(part.num_rows for part in parts) >= _ROWS_IN_A_GROUP:
                    yield pa.Table.from_batches(parts)
                    parts = []
        if parts:
            yield pa.Table.from_batches(parts)

    def _finished(self, batch: Any, names: Sequence[str]) -> Any:
        *kept, texts, errors = batch.columns
        values = [None if text is None else orjson.loads(text) for text in texts.to_pylist()]
        if self._has_names and self._columns:
            predicted = [
                column.array([None if value is None else value.get(name) for value in values])
                for name, column in self._columns.items()
            ]
        else:
            predicted = [self._value.array(values)]
        return pa.RecordBatch.from_arrays(
            [*kept, *predicted, *([errors] if self._has_errors else [])],
            names=[*self._keep, *names],
        )


def _as_text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return orjson.dumps(value).decode()
