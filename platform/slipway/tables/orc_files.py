"""ORC files as record batches."""

from collections.abc import Iterator
from typing import IO, Any

import pyarrow as pa
import pyarrow.dataset as pa_dataset

from slipway.tables.errors import Unreadable
from slipway.tables.parquet_files import BATCH_ROWS, refuse_duplicates, seekable


class OrcFile:
    """One ORC file; raises Unreadable."""

    def __init__(self, source: IO[bytes]) -> None:
        self._opened = seekable(source)
        try:
            # A stripe may be of any size; a fragment reads it in batches.
            self._fragment = pa_dataset.OrcFileFormat().make_fragment(self._opened)
            self.schema = self._fragment.physical_schema
        except (pa.ArrowException, OSError, ValueError) as error:
            raise _broken(error) from error
        refuse_duplicates(self.schema)

    def batches(self) -> Iterator[tuple[int, Any]]:
        """Yield record batches, each with the number of its first row, from 1."""
        row = 1
        try:
            for batch in self._fragment.to_batches(
                batch_size=BATCH_ROWS, batch_readahead=1, use_threads=False
            ):
                if batch.num_rows:
                    yield row, batch
                row += batch.num_rows
        except (pa.ArrowException, OSError, ValueError) as error:
            raise _broken(error) from error


def _broken(error: Exception) -> Unreadable:
    return Unreadable(f"This is not ORC that can be read: {str(error)[:200]}")
