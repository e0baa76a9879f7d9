"""ORC files as record batches."""

from collections.abc import Iterator
from typing import IO, Any

import pyarrow as pa
from pyarrow import orc

from slipway.schemas.truncation import shorten
from slipway.tables.errors import Unreadable
from slipway.tables.parquet_files import BATCH_ROWS, refuse_duplicates, seekable


class OrcFile:
    """One ORC file. Raises Unreadable."""

    def __init__(self, source: IO[bytes]) -> None:
        self._opened = seekable(source)
        try:
            # Not as an Arrow dataset: its threads may still read at exit, which aborts the process.
            self._file = orc.ORCFile(self._opened)
            self.schema = self._file.schema
        except (pa.ArrowException, OSError, ValueError) as error:
            raise _broken(error) from error
        refuse_duplicates(self.schema)

    def batches(self) -> Iterator[tuple[int, Any]]:
        """Yield record batches, each with the number of its first row, from 1."""
        row = 1
        try:
            for number in range(self._file.nstripes):
                stripe = self._file.read_stripe(number)
                for start in range(0, stripe.num_rows, BATCH_ROWS):
                    batch = stripe.slice(start, BATCH_ROWS)
                    yield row, batch
                    row += batch.num_rows
        except (pa.ArrowException, OSError, ValueError) as error:
            raise _broken(error) from error


def _broken(error: Exception) -> Unreadable:
    return Unreadable(f"This is not ORC that can be read: {shorten(str(error), 200)}")
