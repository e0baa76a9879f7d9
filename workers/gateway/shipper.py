"""`python -m workers.gateway.shipper LOG PREDICTIONS`: from the capture log to Parquet.

A sealed segment becomes one file for each endpoint and hour in it,
`PREDICTIONS/endpoint=ID/hour=YYYY-MM-DDTHH/SEGMENT.parquet`, and is then removed. Names follow from
the segment, and files appear whole, so a shipper that is killed repeats itself to the same end. An
open segment is taken when its writer has died, which is when its lock is free. The files of an hour
that is over are merged into one; should a reader come between, `prediction_id` and `is_shadow` say
what is the same prediction. For DuckDB:

    SELECT * FROM read_parquet('PREDICTIONS/*/*/*.parquet', hive_partitioning = true,
                               union_by_name = true) WHERE coalesce(status, 200) = 200

Columns that an endpoint hides are dropped or hashed on the way (`workers.gateway.hiding`).
"""

import fcntl
import logging
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from workers.gateway.hiding import Hider
from workers.gateway.segments import OPEN, SEALED, Prediction, read_blocks
from workers.serving.wire import Contract

log = logging.getLogger(__name__)
_LOOK_S: Final = 0.25
_AFTER_FAILURE_S: Final = 5.0
_MERGE_EVERY_S: Final = 60.0
_MERGE_AFTER_S: Final = 120.0
_HOUR_NS: Final = 3600 * 10**9
_CONTRACTS: Final = {contract.value: contract.name.lower() for contract in Contract}
_LOCK: Final = ".shipper"
# Held by who rewrites files that are merged meanwhile, such as to erase predictions.
_REWRITING: Final = ".rewriting"
_MERGED: Final = "hour.parquet"
_PARTS: Final = b"slipway.parts"
SCHEMA: Final = pa.schema(
    [
        ("prediction_id", pa.string()),
        ("answered_at", pa.timestamp("us", tz="UTC")),
        ("revision", pa.string()),
        ("model", pa.string()),
        ("model_version", pa.string()),
        ("key_id", pa.string()),
        ("contract", pa.string()),
        ("latency_us", pa.int64()),
        ("is_shadow", pa.bool_()),
        # 200, or what a prediction failed with; null in files from before it was kept.
        ("status", pa.int16()),
        # As text (JSON or CSV); tensors that came as bytes are in the columns that follow.
        ("request", pa.string()),
        ("response", pa.string()),
        ("request_bytes", pa.binary()),
        ("response_bytes", pa.binary()),
    ]
)


def ship(segment: Path, predictions: Path, hider: Hider | None = None) -> int:
    """Write one segment as Parquet and remove it; returns how many predictions it held."""
    groups: dict[tuple[str, str], list[Prediction]] = defaultdict(list)
    total = 0
    hours: dict[int, str] = {}
    for one in read_blocks(segment.read_bytes()):
        number = one.at_unix_ns // _HOUR_NS
        if number not in hours:
            hours[number] = f"{datetime.fromtimestamp(number * 3600, UTC):%Y-%m-%dT%H}"
        groups[one.context["endpoint"], hours[number]].append(_hidden(one, hider))
        total += 1
    for (endpoint, hour), found in groups.items():
        folder = predictions / f"endpoint={endpoint}" / f"hour={hour}"
        folder.mkdir(parents=True, exist_ok=True)
        _write(_table(found), folder / f"{segment.stem}.parquet")
    segment.unlink()
    return total


def _hidden(one: Prediction, hider: Hider | None) -> Prediction:
    rules = hider.rules_of(one.context["endpoint"]) if hider is not None else None
    if rules is None:
        return one
    request, request_head = rules.request(one.request, one.request_head, one.context["revision"])
    response, response_head = one.response, one.response_head
    if one.status == 200:
        response, response_head = rules.response(response, response_head)
    return one._replace(
        request=request,
        request_head=request_head,
        response=response,
        response_head=response_head,
    )


def _table(found: list[Prediction]) -> pa.Table:
    # Column by column: a dictionary for each row would cost five times as much.
    asked, asked_bytes = _cut([(one.request, one.request_head) for one in found])
    said, said_bytes = _cut([(one.response, one.response_head) for one in found])
    return pa.Table.from_arrays(
        [
            pa.array([one.prediction_id for one in found], pa.string()),
            pa.array([one.at_unix_ns // 1000 for one in found], pa.timestamp("us", tz="UTC")),
            pa.array([one.context["revision"] for one in found], pa.string()),
            pa.array([one.context["model"] for one in found], pa.string()),
            pa.array([one.context["model_version"] for one in found], pa.string()),
            pa.array([one.key_id for one in found], pa.string()),
            pa.array([_CONTRACTS[one.contract] for one in found], pa.string()),
            pa.array([one.latency_us for one in found], pa.int64()),
            pa.array([one.is_shadow for one in found], pa.bool_()),
            pa.array([one.status for one in found], pa.int16()),
            *(asked, said, asked_bytes, said_bytes),
        ],
        schema=SCHEMA,
    )


def _cut(bodies: list[tuple[bytes, int]]) -> tuple[pa.Array, pa.Array]:
    texts = [body[:head] if head else body for body, head in bodies]
    tails = [body[head:] if head else None for body, head in bodies]
    try:
        column = pa.array(texts, pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        column = pa.array([text.decode(errors="replace") for text in texts], pa.string())
    return column, pa.array(tails, pa.binary())


def _write(table: pa.Table, path: Path) -> None:
    draft = path.with_name(f".{path.name}.part")
    try:
        pq.write_table(table, draft, compression="zstd")
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


def is_abandoned(segment: Path) -> bool:
    """Whether the writer of an open segment has died."""
    try:
        with segment.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def ship_all(capture: Path, predictions: Path, hider: Hider | None = None) -> int:
    """Ship what can be shipped now; returns how many predictions that were."""
    total = 0
    for segment in sorted(capture.glob(f"*{SEALED}")):
        total += ship(segment, predictions, hider)
    for segment in sorted(capture.glob(f"*{OPEN}")):
        if is_abandoned(segment):
            total += ship(segment, predictions, hider)
    return total


def merge_hours(predictions: Path, *, before_unix_s: float) -> int:
    """Merge the files of hours that ended before then; returns how many hours were merged."""
    merged = 0
    for folder in sorted(predictions.glob("endpoint=*/hour=*")):
        try:
            hour = datetime.strptime(folder.name, "hour=%Y-%m-%dT%H").replace(tzinfo=UTC)
        except ValueError:
            continue
        if hour.timestamp() + 3600 <= before_unix_s:
            with _alone(predictions):
                merged += _merge(folder)
    return merged


@contextmanager
def _alone(predictions: Path) -> Iterator[None]:
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
        # Killed between merging and removing: what is in the merged file only has to go.
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
    table = pa.concat_tables([pq.read_table(path, schema=SCHEMA) for path in sources])
    names = " ".join(path.name for path in parts).encode()
    _write(table.replace_schema_metadata({_PARTS: names}), target)
    for path in parts:
        path.unlink()
    return 1


def _watch_parent() -> None:
    # The gateway holds the other end of stdin: when it dies, what is left is shipped, and we end.
    sys.stdin.buffer.read()
    _orphaned.set()


_orphaned = threading.Event()


def main() -> int:
    """Ship until the gateway is gone."""
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)-7s shipper: %(message)s"
    )
    capture, predictions = Path(sys.argv[1]), Path(sys.argv[2])
    os.nice(10)
    threading.Thread(target=_watch_parent, name="parent", daemon=True).start()
    capture.mkdir(parents=True, exist_ok=True, mode=0o700)
    # One shipper a log: an orphan that still ships what was left is waited for.
    lock = os.open(capture / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    next_merge = 0.0
    hider = Hider(capture.parent / "snapshot.json")
    while True:
        is_last = _orphaned.is_set()
        pause_s = _LOOK_S
        try:
            hider.refresh()
            ship_all(capture, predictions, hider)
            if time.monotonic() >= next_merge:
                next_merge = time.monotonic() + _MERGE_EVERY_S
                merge_hours(predictions, before_unix_s=time.time() - _MERGE_AFTER_S)
        except OSError as error:
            # The log waits on the disk; what does not fit there any more is dropped and counted.
            log.warning("cannot ship: %s", error)
            pause_s = _AFTER_FAILURE_S
        if is_last:
            return 0
        _orphaned.wait(pause_s)


if __name__ == "__main__":
    sys.exit(main())
