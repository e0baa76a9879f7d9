"""`python -m workers.gateway.shipper LOG PREDICTIONS`: from the capture log to Parquet.

A sealed segment becomes one file for each endpoint and hour in it,
`PREDICTIONS/endpoint=ID/hour=YYYY-MM-DDTHH/SEGMENT.parquet`, and is then removed. Names derive from
the segment and files appear atomically, so a killed shipper can repeat its work with the same
result. An open segment is shipped once its writer has died, which releases its lock. The files of a
past hour are merged into one. A reader may see both while that happens: `prediction_id` and
`is_shadow` identify duplicates. For DuckDB:

    SELECT * FROM read_parquet('PREDICTIONS/*/*/*.parquet', hive_partitioning = true,
                               union_by_name = true) WHERE coalesce(status, 200) = 200

Columns that an endpoint hides are dropped or hashed on the way (`workers.gateway.redaction`).
"""

import fcntl
import logging
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent import futures
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from workers.gateway.capture_log.arrow import SCHEMA, WRITTEN, Part, by_hour, table_of
from workers.gateway.capture_log.format import AT_REST, AT_WORK, OPEN, SEALED
from workers.gateway.capture_log.reader import read_parts
from workers.gateway.redaction import Redactor
from workers.gateway.shipping_priority import (
    GROUP_BYTES,
    HURRIED_GROUP_BYTES,
    Attempt,
    use_idle_priority,
)

log = logging.getLogger(__name__)
_LOOK_S: Final = 0.25
# Segments sealed longer ago are overdue: predictions should be searchable within 5 seconds.
_LATE_S: Final = 1.5
_HURRY_FOR_S: Final = 3.0
_TOO_LATE_S: Final = 3.0
_NICE: Final = 5
_CALM: Final = ".calm"
_AFTER_FAILURE_S: Final = 5.0
# Bytes that are read, converted to columns and written in one step: small enough for the
# processor's cache, and no step takes long.
_PIECE_BYTES: Final = 1 << 20
_MERGE_EVERY_S: Final = 60.0
_MERGE_AFTER_S: Final = 120.0
# Bytes in memory at once while an hour is merged, and the size of its row groups.
_BYTES_AT_ONCE: Final = 32 << 20
# Parquet options: large columns are compressed well and others fast, unique columns need no
# dictionary, and no query filters by the minimum and maximum of bodies.
_BODIES: Final = ("request", "response", "request_bytes", "response_bytes")
_COMPRESSIONS: Final = {
    name: "zstd" if name in (*_BODIES, "prediction_id") else "snappy" for name in SCHEMA.names
}
_REPEATED: Final = [name for name in SCHEMA.names if name not in ("prediction_id", "answered_at")]
_SELECTED_BY: Final = [name for name in SCHEMA.names if name not in _BODIES]
_LOCK: Final = ".shipper"
# Lock for processes that rewrite files that may be merged, such as to erase predictions.
_REWRITING: Final = ".rewriting"
_MERGED: Final = "hour.parquet"
_PARTS: Final = b"slipway.parts"


def ship(
    segment: Path, predictions: Path, hider: Redactor | None = None, attempt: Attempt | None = None
) -> int:
    """Write one segment as Parquet, remove it, and return how many predictions it held.

    Raises GivenUp, and leaves nothing behind, if the attempt was given up.
    """
    attempt = attempt or Attempt()
    shipped = 0
    drafts: dict[Path, Draft] = {}
    with ExitStack() as unfinished, segment.open("rb") as file:
        for parts in read_parts(file, _PIECE_BYTES, attempt.pause):
            attempt.pause()
            for folder, tables in _tables_by_folder(parts, predictions, hider).items():
                attempt.pause()
                if folder not in drafts:
                    folder.mkdir(parents=True, exist_ok=True)
                    path = folder / f"{segment.stem}.parquet"
                    draft = Draft(path, WRITTEN, attempt.mark, attempt.group_bytes)
                    drafts[folder] = unfinished.enter_context(draft)
                    attempt.pause()
                shipped += sum(drafts[folder].add(table) for table in tables)
                attempt.pause()
        for draft in drafts.values():
            draft.write_added()
            attempt.pause()
        with attempt.ending():
            for draft in drafts.values():
                draft.finish()
            segment.unlink()
    return shipped


def _tables_by_folder(
    parts: list[Part], predictions: Path, hider: Redactor | None
) -> dict[Path, list[pa.Table]]:
    tables: dict[Path, list[pa.Table]] = defaultdict(list)
    for part in parts:
        endpoint = part.context["endpoint"]
        rules = hider.rules_of(endpoint) if hider is not None else None
        for hour, value in by_hour(part):
            folder = predictions / f"endpoint={endpoint}" / f"hour={hour}"
            tables[folder].append(table_of(value, rules.hide if rules is not None else None))
    return tables


def _tables(sources: list[Path]) -> Iterator[pa.Table]:
    """Yield the rows of these files in pieces, because an hour may be larger than memory."""
    held: list[pa.Table] = []
    for path in sources:
        with pq.ParquetFile(path) as file:
            for group in range(file.num_row_groups):
                held.append(_with_all_columns(file.read_row_group(group)))
                if sum(table.nbytes for table in held) > _BYTES_AT_ONCE:
                    yield pa.concat_tables(held)
                    held = []
    if held:
        yield pa.concat_tables(held)


def _with_all_columns(table: pa.Table) -> pa.Table:
    """Return a table with the columns of SCHEMA. Columns that old files lack are null."""
    for field in SCHEMA:
        if field.name not in table.column_names:
            table = table.append_column(field, pa.nulls(len(table), field.type))
    return table.select(SCHEMA.names).cast(SCHEMA)


class Draft:
    """A Parquet file that appears complete, by `finish`, or not at all. Methods raise OSError."""

    def __init__(
        self,
        path: Path,
        schema: pa.Schema = SCHEMA,
        mark: str = "",
        group_bytes: int = GROUP_BYTES,
    ) -> None:
        self._group_bytes = group_bytes
        self._path = path
        self._draft = path.with_name(f".{path.name}{mark}.part")
        self._schema = schema
        self._added: list[pa.Table] = []
        self._added_bytes = 0
        self._writer = pq.ParquetWriter(
            self._draft,
            schema,
            compression=_COMPRESSIONS,
            use_dictionary=_REPEATED,
            write_statistics=_SELECTED_BY,
            # With it readers would get dictionaries, not strings. Without it metadata is lost.
            store_schema=not schema.equals(WRITTEN),
        )

    def __enter__(self) -> "Draft":
        return self

    def write(self, table: pa.Table) -> int:
        """Write a row group and return its number of rows."""
        self._writer.write_table(table.replace_schema_metadata(self._schema.metadata))
        return len(table)

    def add(self, table: pa.Table) -> int:
        """Buffer rows, write them once they fill a row group, and return the number added."""
        self._added.append(table)
        self._added_bytes += table.nbytes
        if self._added_bytes >= self._group_bytes:
            self.write_added()
        return len(table)

    def write_added(self) -> None:
        """Write the buffered rows as a row group."""
        if self._added:
            self.write(pa.concat_tables(self._added))
        self._added, self._added_bytes = [], 0

    def finish(self) -> None:
        """Make the file visible."""
        self._writer.close()
        self._draft.replace(self._path)
        # Draft of the idle-priority thread, if it was killed or has given up.
        self._path.with_name(f".{self._path.name}{_CALM}.part").unlink(missing_ok=True)

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._writer.close()
        self._draft.unlink(missing_ok=True)


def is_abandoned(segment: str | os.PathLike[str]) -> bool:
    """Return whether the writer of an open segment has died."""
    try:
        file = os.open(segment, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(file)
    return True


class ShipperThreads:
    """Two shipping threads: an idle-priority one, and a normal one for overdue segments.

    There are two because a thread that gave up its priority may not take it back. A segment that
    the idle-priority thread has not finished in time is restarted by the other: on a busy processor
    the former hardly runs at all. `tell` is called at each change with whether they work.
    """

    def __init__(
        self,
        capture: Path,
        predictions: Path,
        hider: Redactor | None = None,
        tell: Callable[[bool], None] | None = None,
    ) -> None:
        self._on_activity = tell
        self._reported_active = False
        self._capture = capture
        self._predictions = predictions
        self._hider = hider
        self._idle_executor = ThreadPoolExecutor(1, "calm", use_idle_priority)
        self._urgent_executor = ThreadPoolExecutor(1, "hurried")
        self._under_way: dict[Path, Future[int]] = {}
        self._idle_future: Future[int] | None = None
        self._idle_attempts: dict[Path, Attempt] = {}
        self._hurry_until = 0.0

    def start_due(self) -> None:
        """Start to ship all available segments, overdue ones with normal priority."""
        now = time.time()
        for segment in self._segments():
            attempt = self._idle_attempts.get(segment)
            if segment in self._under_way and attempt is None:
                continue
            try:
                age_s = now - segment.stat().st_mtime
            except FileNotFoundError:
                continue
            if age_s > _LATE_S:
                self._hurry_until = now + _HURRY_FOR_S
            if attempt is not None:
                if age_s > _LATE_S and attempt.abandon():
                    del self._idle_attempts[segment]
                    self._start(self._urgent_executor, segment, _hurried_attempt(age_s))
            elif now < self._hurry_until:
                self._start(self._urgent_executor, segment, _hurried_attempt(age_s))
            elif self._idle_future is None or self._idle_future.done():
                attempt = self._idle_attempts[segment] = Attempt(_CALM, yields=True)
                self._idle_future = self._start(self._idle_executor, segment, attempt)
        is_at_work = bool(self._under_way)
        if self._on_activity is not None and is_at_work != self._reported_active:
            self._reported_active = is_at_work
            self._on_activity(is_at_work)

    def wait(self, within_s: float) -> bool:
        """Wait up to `within_s` until a segment is shipped. Return False if none is in progress.

        Raises OSError if a segment could not be shipped.
        """
        if not self._under_way:
            return False
        futures.wait(self._under_way.values(), within_s, futures.FIRST_COMPLETED)
        done = [segment for segment, work in self._under_way.items() if work.done()]
        works = [self._under_way.pop(segment) for segment in done]
        for segment in done:
            self._idle_attempts.pop(segment, None)
        for work in works:
            work.result()
        return True

    def finish(self) -> None:
        """Ship all remaining segments, without waiting for an idle processor. Raises OSError."""
        for segment, attempt in self._idle_attempts.items():
            if attempt.abandon():
                del self._under_way[segment]
        while self._under_way:
            self.wait(_AFTER_FAILURE_S)
        for segment in self._segments():
            ship(segment, self._predictions, self._hider)

    def _start(self, pool: ThreadPoolExecutor, segment: Path, attempt: Attempt) -> "Future[int]":
        work = pool.submit(ship, segment, self._predictions, self._hider, attempt)
        self._under_way[segment] = work
        return work

    def _segments(self) -> list[Path]:
        items = []
        with os.scandir(self._capture) as entries:
            for entry in entries:
                name = entry.name
                if name.endswith(SEALED) or (name.endswith(OPEN) and is_abandoned(entry.path)):
                    items.append(name)
        return [self._capture / name for name in sorted(items)]


def _hurried_attempt(age_s: float) -> Attempt:
    if age_s < _TOO_LATE_S:
        return Attempt(rests=True, group_bytes=HURRIED_GROUP_BYTES)
    return Attempt()


def merge_hours(predictions: Path, *, before_unix_s: float) -> int:
    """Merge the files of hours that ended before a time and return how many hours were merged."""
    merged = 0
    for folder in sorted(predictions.glob("endpoint=*/hour=*")):
        try:
            hour = datetime.strptime(folder.name, "hour=%Y-%m-%dT%H").replace(tzinfo=UTC)
        except ValueError:
            continue
        if hour.timestamp() + 3600 <= before_unix_s:
            with _rewrite_lock(predictions):
                merged += _merge(folder)
    return merged


@contextmanager
def _rewrite_lock(predictions: Path) -> Iterator[None]:
    lock = os.open(predictions / _REWRITING, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _merge(folder: Path) -> int:
    target = folder / _MERGED
    done: set[str] = set()
    if target.exists():
        # Killed between merging and removing: delete the files that are merged already.
        metadata = pq.read_schema(target).metadata or {}
        done = set(metadata.get(_PARTS, b"").decode().split())
    parts = []
    for path in sorted(folder.glob("*.parquet")):
        if path.name in done:
            path.unlink()
        elif path != target:
            parts.append(path)
    if not parts:
        return 0
    sources = [*([target] if target.exists() else []), *parts]
    names = " ".join(path.name for path in parts).encode()
    with Draft(target, SCHEMA.with_metadata({_PARTS: names})) as draft:
        for table in _tables(sources):
            draft.write(table)
        draft.finish()
    for path in parts:
        path.unlink()
    return 1


def _notify_gateway(is_at_work: bool) -> None:
    # The gateway may be gone. The remaining segments are shipped nevertheless.
    with suppress(OSError):
        os.write(sys.stdout.fileno(), AT_WORK if is_at_work else AT_REST)


def _watch_parent() -> None:
    # The gateway holds the other end of stdin. When it dies, ship the rest and exit.
    sys.stdin.buffer.read()
    _orphaned.set()


_orphaned = threading.Event()


def main() -> int:
    """Ship until the gateway exits."""
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)-7s shipper: %(message)s"
    )
    capture, predictions = Path(sys.argv[1]), Path(sys.argv[2])
    os.nice(_NICE)
    threading.Thread(target=_watch_parent, name="parent", daemon=True).start()
    capture.mkdir(parents=True, exist_ok=True, mode=0o700)
    # One shipper per log: wait for an orphan that still ships the remaining segments.
    lock = os.open(capture / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    next_merge = 0.0
    hider = Redactor(capture.parent / "snapshot.json")
    crew = ShipperThreads(capture, predictions, hider, _notify_gateway)
    while True:
        is_last = _orphaned.is_set()
        pause_s = _LOOK_S
        try:
            hider.refresh()
            if is_last:
                crew.finish()
                return 0
            crew.start_due()
            if crew.wait(_LOOK_S):
                pause_s = 0.0
            if time.monotonic() >= next_merge:
                next_merge = time.monotonic() + _MERGE_EVERY_S
                merge_hours(predictions, before_unix_s=time.time() - _MERGE_AFTER_S)
        except OSError as error:
            # The log stays on the disk. Predictions beyond its limit are dropped and counted.
            log.warning("cannot ship: %s", error)
            pause_s = _AFTER_FAILURE_S
            if is_last:
                return 0
        _orphaned.wait(pause_s)


if __name__ == "__main__":
    sys.exit(main())
