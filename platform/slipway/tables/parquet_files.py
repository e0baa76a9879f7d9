"""Parquet files as record batches."""

import tempfile
from collections.abc import Iterator
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from slipway.schemas.truncation import join_names, shorten
from slipway.tables.errors import Unreadable

BATCH_ROWS = 10_000
_COPY_BYTES = 1024**2
# Parquet files declare uncompressed sizes. A row group that declares more than this is not read.
_MOST_IN_A_ROW_GROUP = 2 * 1024**3


class ParquetFile:
    """One Parquet file. Raises Unreadable."""

    def __init__(self, source: IO[bytes]) -> None:
        self._opened = seekable(source)
        try:
            self._file = pq.ParquetFile(self._opened)
            self.schema = self._file.schema_arrow
        except (pa.ArrowException, OSError, ValueError) as error:
            raise _broken(error) from error
        _refuse_bomb(self._file)
        refuse_duplicates(self.schema)

    def batches(self) -> Iterator[tuple[int, Any]]:
        """Yield record batches, each with the number of its first row, from 1."""
        row = 1
        try:
            for batch in self._file.iter_batches(batch_size=BATCH_ROWS):
                yield row, batch
                row += batch.num_rows
        except (pa.ArrowException, OSError, ValueError) as error:
            raise _broken(error) from error


def _broken(error: Exception) -> Unreadable:
    return Unreadable(f"This is not Parquet that can be read: {shorten(str(error), 200)}")


def _refuse_bomb(file: Any) -> None:
    metadata = file.metadata
    for at in range(metadata.num_row_groups):
        if metadata.row_group(at).total_byte_size > _MOST_IN_A_ROW_GROUP:
            raise Unreadable("A row group is larger than 2 GiB unpacked; write smaller ones.")


def seekable(source: IO[bytes]) -> Any:
    """Return a file that can be read from anywhere: the source, or a copy of it."""
    if source.seekable():
        return source
    copy = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as its reader
    while piece := source.read(_COPY_BYTES):
        copy.write(piece)
    copy.seek(0)
    return copy


def refuse_duplicates(schema: Any) -> None:
    """Raise Unreadable for a name that two columns have."""
    names = schema.names
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        places = [str(at) for at, name in enumerate(names, start=1) if name == twice]
        raise Unreadable(
            f"It has two columns named {shorten(twice, 120)}, in the places "
            f"{join_names(places, 10)}. "
            "Rename one of them."
        )
