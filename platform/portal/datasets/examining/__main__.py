"""Reads one table from standard input and writes what it found to standard output.

Frames come in: a line of JSON (`path`, `format`, `size`), then that many bytes.
"""

import csv
import io
import json
import resource
import sys
import tempfile
import time
from typing import IO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from portal.datasets.examining.table import Table, Unreadable
from portal.datasets.examining.texts import MAX_LINE, read_csv, read_json_lines

_CPU_S = 240
_COPY_BYTES = 1024**2
_BATCH_ROWS = 10_000
# A page of Parquet says itself how large it is unpacked; what says more than this is not opened.
_MOST_IN_A_ROW_GROUP = 2 * 1024**3


class _Frame(io.RawIOBase):
    """The next bytes of standard input, and no more."""

    def __init__(self, source: IO[bytes], size: int) -> None:
        self._source, self._left = source, size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        got = self._source.read(min(len(buffer), self._left))
        buffer[: len(got)] = got
        self._left -= len(got)
        return len(got)

    def drain(self) -> None:
        """Read over what nobody wanted."""
        while self._left and (got := self._source.read(min(_COPY_BYTES, self._left))):
            self._left -= len(got)


def _read_parquet(source: IO[bytes], *, path: str, table: Table, until: float) -> None:
    with tempfile.TemporaryFile() as copy:
        while piece := source.read(_COPY_BYTES):
            copy.write(piece)
        try:
            found = pq.ParquetFile(copy)
            _refuse_bomb(found)
            table.begin({field.name: _plain(field.type) for field in found.schema_arrow})
            left = found.metadata.num_rows
            for batch in found.iter_batches(batch_size=_BATCH_ROWS):
                left -= batch.num_rows
                columns = table.columns.values()
                table.add(
                    [
                        pc.cast(some, one.type)
                        for some, one in zip(batch.columns, columns, strict=True)
                    ]
                )
                if left and time.monotonic() > until:
                    table.is_complete = False
                    return
        except (pa.ArrowException, OSError, ValueError) as error:
            raise Unreadable(f"This is not Parquet that can be read: {str(error)[:200]}") from error


def _refuse_bomb(found: pq.ParquetFile) -> None:
    facts = found.metadata
    for at in range(facts.num_row_groups):
        if facts.row_group(at).total_byte_size > _MOST_IN_A_ROW_GROUP:
            raise Unreadable("A row group is larger than 2 GiB unpacked; write smaller ones.")


def _plain(kind: pa.DataType) -> pa.DataType:
    """Return what a column is counted as: categories by their values, decimals as numbers."""
    if pa.types.is_dictionary(kind):
        return kind.value_type
    if pa.types.is_decimal(kind):
        return pa.float64()
    return kind


_READERS = {"csv": read_csv, "jsonl": read_json_lines, "parquet": _read_parquet}


def main(budget_s: float, memory_bytes: int) -> None:
    """Read the frames and write the result."""
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_S, _CPU_S))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    pa.set_memory_pool(pa.system_memory_pool())
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    csv.field_size_limit(MAX_LINE)
    until = time.monotonic() + budget_s
    table = Table()
    while table.is_complete and (line := sys.stdin.buffer.readline(10_000)):
        said = json.loads(line)
        frame = _Frame(sys.stdin.buffer, said["size"])
        source: IO[bytes] = io.BufferedReader(frame, _COPY_BYTES)
        try:
            _READERS[said["format"]](source, path=said["path"], table=table, until=until)
        except Unreadable as error:
            table.complain(said["path"], error.message, line=error.line)
        except MemoryError:
            most = f"{memory_bytes / 1024**3:g} GiB"
            table.complain(said["path"], f"Reading it takes more than {most} of memory.")
            table.is_complete = False
        if table.is_complete:
            frame.drain()
    result = {
        "statistics": table.statistics().model_dump(mode="json"),
        "preview": table.preview,
        "bad_rows": table.bad_rows,
        "problems": [problem.model_dump() for problem in table.problems],
    }
    sys.stdout.write(json.dumps(result, allow_nan=False))


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]))
