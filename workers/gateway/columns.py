"""Segments of the capture log as Arrow tables, by whole columns: a row costs no Python object.

Only the shipper imports this; numpy and pyarrow stay out of the gateway.
"""

import os
import zlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, BinaryIO, Final, NamedTuple, Protocol

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from numpy.lib.stride_tricks import sliding_window_view

from workers.gateway.segments import BLOCK, MAGIC, RECORD, SHADOW
from workers.serving.wire import Contract

_HOUR_NS: Final = 3600 * 10**9
_BYTES_BETWEEN_PAUSES: Final = 128 << 10
# `segments.RECORD`, field by field.
_RECORD: Final = np.dtype(
    [
        ("name", "S30"),
        ("key", "S64"),
        ("at_ns", "<u8"),
        ("took_us", "<u4"),
        ("lengths", "<u4", 2),
        ("heads", "<u4", 2),
        ("contract", "u1"),
        ("flags", "u1"),
        ("status", "<u2"),
    ]
)
_CONTRACTS: Final = pa.array([contract.name.lower() for contract in sorted(Contract)])
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


class Part(NamedTuple):
    """Predictions of one revision: `(n,)` records, `(n,)` inputs and `(n,)` outputs."""

    context: dict[str, Any]
    records: np.ndarray[Any, Any]
    asked: pa.Array
    said: pa.Array

    def where(self, mask: np.ndarray[Any, Any]) -> "Part":
        """Return those of them."""
        chosen = pa.array(mask)
        return Part(
            self.context, self.records[mask], self.asked.filter(chosen), self.said.filter(chosen)
        )


class Hide(Protocol):
    """What of a body and the length of its JSON before tensors may be kept."""

    def __call__(
        self, revision: str, body: bytes, head: int, *, is_input: bool, is_failed: bool = False
    ) -> tuple[bytes, int]:
        """Return them as they may be."""


class _Blocks(NamedTuple):
    """Where in a piece the records of blocks of one context begin, and how many each has."""

    places: list[int]
    counts: list[int]


def read_parts(
    segment: BinaryIO, piece_bytes: int, pause: Callable[[], None]
) -> Iterator[list[Part]]:
    """Yield the predictions of a segment, about so many bytes at a time.

    It ends before the first block that is not whole. `pause` is called after little work each time.
    """
    left = os.fstat(segment.fileno()).st_size
    at, needed = 0, BLOCK.size
    # What is no length is not asked for: memory for it would be taken first.
    while needed and needed <= left:
        segment.seek(at)
        piece = segment.read(max(piece_bytes, needed))
        if len(piece) < needed:
            return
        pause()
        found, end, needed = _whole_blocks(piece, pause)
        if parts := [_part(piece, context, blocks) for context, blocks in found.items()]:
            pause()
            yield parts
        at += end
        left -= end


def _whole_blocks(piece: bytes, pause: Callable[[], None]) -> tuple[dict[bytes, _Blocks], int, int]:
    """Return the blocks a piece begins with by their context, where they end, and what is needed.

    That is how many bytes from there are to be read to go on, and 0 where no block is.
    """
    found: dict[bytes, _Blocks] = {}
    unpack, head = BLOCK.unpack_from, BLOCK.size
    bytes_of = memoryview(piece)
    at, size, pause_at = 0, len(piece), _BYTES_BETWEEN_PAUSES
    while at + head <= size:
        magic, length, count, context_length, check = unpack(piece, at)
        start = at + head
        end = start + length
        if magic != MAGIC:
            return found, at, 0
        if end > size:
            return found, at, end - at
        if zlib.crc32(bytes_of[start:end]) != check:
            return found, at, 0
        place = start + context_length
        context = piece[start:place]
        if context not in found:
            found[context] = _Blocks([], [])
        blocks = found[context]
        blocks.places.append(place)
        blocks.counts.append(count)
        at = end
        if at > pause_at:
            pause()
            pause_at = at + _BYTES_BETWEEN_PAUSES
    return found, at, head


def _part(piece: bytes, context: bytes, blocks: _Blocks) -> Part:
    places, counts = np.array(blocks.places), np.array(blocks.counts)
    firsts = np.cumsum(counts) - counts
    number = np.arange(counts.sum()) - np.repeat(firsts, counts)
    letters = sliding_window_view(np.frombuffer(piece, np.uint8), RECORD.size)
    records = letters[np.repeat(places, counts) + number * RECORD.size].view(_RECORD)[:, 0]
    lengths = records["lengths"].astype(np.int64)
    before = np.concatenate([[0], np.cumsum(lengths.sum(axis=1))])
    # Of a prediction: what stands before it and is none of it, its input, its output.
    ends = np.zeros(3 * len(records) + 1, np.int64)
    bodies = np.repeat(places + counts * RECORD.size - before[firsts], counts)
    ends[1::3] = bodies + before[:-1]
    ends[2::3] = ends[1::3] + lengths[:, 0]
    ends[3::3] = ends[2::3] + lengths[:, 1]
    whole = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(ends) - 1, [None, pa.py_buffer(ends), pa.py_buffer(piece)]
    )
    asked, said = (
        whole.take(pa.array(np.arange(side, len(ends) - 1, 3, dtype=np.int64))) for side in (1, 2)
    )
    return Part(orjson.loads(context), records, asked, said)


def by_hour(part: Part) -> Iterator[tuple[str, Part]]:
    """Yield the predictions of each hour, and its name."""
    hours = part.records["at_ns"] // _HOUR_NS
    if not len(hours):
        return
    is_one = hours.min() == hours.max()
    for hour in (hours[:1] if is_one else np.unique(hours)).tolist():
        name = f"{datetime.fromtimestamp(hour * 3600, UTC):%Y-%m-%dT%H}"
        yield name, part if is_one else part.where(hours == hour)


def table_of(part: Part, hide: Hide | None = None) -> pa.Table:
    """Return predictions as SCHEMA has them, `hide` asked for each body."""
    records, count = part.records, len(part.records)
    asked, asked_bytes = _side(part, 0, hide)
    said, said_bytes = _side(part, 1, hide)
    micros = (records["at_ns"] // 1000).astype(np.int64)
    status = records["status"].astype(np.int16)
    return pa.Table.from_arrays(
        [
            _names(records["name"]),
            pa.array(micros).cast(pa.timestamp("us", tz="UTC")),
            *(
                pa.repeat(pa.scalar(part.context[name], pa.string()), count)
                for name in ("revision", "model", "model_version")
            ),
            _text(records["key"]),
            _CONTRACTS.take(pa.array(records["contract"].astype(np.int8))),
            pa.array(records["took_us"].astype(np.int64)),
            pa.array(records["flags"] & SHADOW > 0),
            pa.array(np.where(status == 0, np.int16(200), status)),
            *(asked, said, asked_bytes, said_bytes),
        ],
        schema=SCHEMA,
    )


def _names(fixed: np.ndarray[Any, Any]) -> pa.Array:
    """Return ids: as they are where all have their full length, and are ASCII."""
    width = fixed.dtype.itemsize
    letters = np.ascontiguousarray(fixed).view(np.uint8)
    if not letters.reshape(-1, width).all() or (letters > 127).any():
        return _text(fixed)
    ends = np.arange(0, len(letters) + 1, width, dtype=np.int32)
    return pa.StringArray.from_buffers(len(fixed), pa.py_buffer(ends), pa.py_buffer(letters))


def _text(fixed: np.ndarray[Any, Any]) -> pa.Array:
    # numpy leaves the zeros at the end out.
    return pa.array(np.ascontiguousarray(fixed), pa.binary()).cast(pa.string())


def _side(part: Part, number: int, hide: Hide | None) -> tuple[pa.Array, pa.Array]:
    """Return the texts and the bytes behind them of all inputs (0), or of all outputs (1)."""
    bodies = part.said if number else part.asked
    heads = part.records["heads"][:, number]
    if hide is None and not heads.any():
        return _readable(bodies), pa.nulls(len(bodies), pa.binary())
    rows = list(zip(bodies.to_pylist(), heads.tolist(), strict=True))
    if hide is not None:
        failed = ~np.isin(part.records["status"], (0, 200))
        rows = [
            (body, head)
            if number and is_failed
            else hide(
                part.context["revision"], body, head, is_input=number == 0, is_failed=is_failed
            )
            for (body, head), is_failed in zip(rows, failed.tolist(), strict=True)
        ]
    texts = [body[:head] if head else body for body, head in rows]
    tails = [body[head:] if head else None for body, head in rows]
    return _readable(pa.array(texts, pa.large_binary())), pa.array(tails, pa.binary())


def _readable(bodies: pa.Array) -> pa.Array:
    try:
        return pc.cast(bodies, pa.large_string()).cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([body.decode(errors="replace") for body in bodies.to_pylist()], pa.string())
