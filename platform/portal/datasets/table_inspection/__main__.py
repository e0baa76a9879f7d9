"""Reads one table from standard input and writes what it found to standard output.

First a line of JSON comes in: the `settings`, and the `schema` where an earlier pass has determined
it, and the values of the `partitions`. Then frames: a line of JSON (`path`, `format`, `size`), then
that many bytes.
"""

import io
import json
import resource
import sys
import time
from typing import IO

import pyarrow as pa

import portal.core.without_pandas  # noqa: F401  (pyarrow imports pandas at its first use)
from portal.datasets.table_inspection.table import TableProfile
from slipway.schemas.tables import ReadSettings, TableSchema
from slipway.tables import TableReader

_CPU_S = 240
_COPY_BYTES = 1024**2
_LONGEST_HEAD = 64 * 1024**2


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


def _limit(memory_bytes: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_S, _CPU_S))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    pa.set_memory_pool(pa.system_memory_pool())
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)


def main(budget_s: float, memory_bytes: int) -> None:
    """Read the frames and write the result."""
    _limit(memory_bytes)
    until = time.monotonic() + budget_s
    head = json.loads(sys.stdin.buffer.readline(_LONGEST_HEAD))
    table = TableProfile()
    reader = TableReader(
        ReadSettings.model_validate(head["settings"]),
        schema=TableSchema.model_validate(head["schema"]) if head["schema"] else None,
        partitions=head["partitions"],
        on_problem=table.note,
    )
    while reader.is_complete and (line := sys.stdin.buffer.readline(10_000)):
        document = json.loads(line)
        frame = _Frame(sys.stdin.buffer, document["size"])
        source: IO[bytes] = io.BufferedReader(frame, _COPY_BYTES)
        batches = reader.read(source, path=document["path"], format=document["format"])
        has_any = False
        for batch in batches:
            # The first batch is always inspected, even if the time is up.
            if has_any and time.monotonic() > until:
                reader.is_complete = False
                break
            has_any = True
            if not reader.is_stale:
                table.add(batch)
        if reader.is_complete:
            frame.drain()
    schema = reader.schema()
    result = {
        "statistics": table.statistics(reader.arrow_schema, is_complete=reader.is_complete),
        "schema": schema.model_dump(mode="json"),
        "is_stale": reader.is_stale,
        "preview": table.preview,
        "bad_rows": reader.bad_rows,
        "problems": [problem.model_dump() for problem in table.problems],
    }
    sys.stdout.write(json.dumps(result, allow_nan=False))


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]))
