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

from workers.gateway.segments import BLOCK, MAGIC, RECORD, SHADOW
from workers.serving.wire import Contract

_HOUR_NS: Final = 3600 * 10**9
_BLOCKS_AT_ONCE: Final = 16
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
    """Predictions of one revision: `(n,)` records, and `(n, 2)` bodies, inputs and outputs."""

    context: dict[str, Any]
    records: np.ndarray[Any, Any]
    bodies: pa.Array

    def side(self, number: int) -> pa.Array:
        """Return all inputs (0) or all outputs (1)."""
        places = np.arange(number, 2 * len(self.records), 2, dtype=np.int64)
        return self.bodies.take(pa.array(places))

    def where(self, mask: np.ndarray[Any, Any]) -> "Part":
        """Return those of them."""
        places = np.flatnonzero(np.repeat(mask, 2))
        return Part(self.context, self.records[mask], self.bodies.take(pa.array(places)))


class Hide(Protocol):
    """What of a body and the length of its JSON before tensors may be kept."""

    def __call__(
        self, revision: str, body: bytes, head: int, *, is_input: bool, is_failed: bool = False
    ) -> tuple[bytes, int]:
        """Return them as they may be."""


def read_parts(
    segment: BinaryIO, piece_bytes: int, pause: Callable[[], None]
) -> Iterator[list[Part]]:
    """Yield the predictions of a segment, about so many bytes at a time.

    It ends before the first block that is not whole. `pause` is called after little work each time.
    """
    found: dict[bytes, tuple[list[bytes], list[bytes]]] = {}
    held = 0
    for number, (context, records, bodies) in enumerate(_blocks(segment)):
        if number % _BLOCKS_AT_ONCE == 0:
            pause()
        kept = found.setdefault(context, ([], []))
        kept[0].append(records)
        kept[1].append(bodies)
        held += len(records) + len(bodies)
        if held >= piece_bytes:
            pause()
            yield [_part(context, *kept) for context, kept in found.items()]
            found, held = {}, 0
    if found:
        yield [_part(context, *kept) for context, kept in found.items()]


def _blocks(segment: BinaryIO) -> Iterator[tuple[bytes, bytes, bytes]]:
    left = os.fstat(segment.fileno()).st_size
    while len(head := segment.read(BLOCK.size)) == BLOCK.size:
        magic, length, count, context_length, check = BLOCK.unpack(head)
        left -= BLOCK.size + length
        # What is no length is not asked for: memory for it would be taken first.
        if magic != MAGIC or left < 0:
            return
        body = segment.read(length)
        if len(body) != length or zlib.crc32(body) != check:
            return
        place = context_length + count * RECORD.size
        yield body[:context_length], body[context_length:place], body[place:]


def _part(context: bytes, records: list[bytes], bodies: list[bytes]) -> Part:
    table = np.frombuffer(b"".join(records), _RECORD)
    ends = np.zeros(2 * len(table) + 1, np.int64)
    np.cumsum(table["lengths"].reshape(-1), out=ends[1:])
    whole = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(),
        2 * len(table),
        [None, pa.py_buffer(ends), pa.py_buffer(b"".join(bodies))],
    )
    return Part(orjson.loads(context), table, whole)


def by_hour(part: Part) -> Iterator[tuple[str, Part]]:
    """Yield the predictions of each hour, and its name."""
    hours = part.records["at_ns"] // _HOUR_NS
    for hour in np.unique(hours).tolist():
        name = f"{datetime.fromtimestamp(hour * 3600, UTC):%Y-%m-%dT%H}"
        mask = hours == hour
        yield name, part if mask.all() else part.where(mask)


def table_of(part: Part, hide: Hide | None = None) -> pa.Table:
    """Return predictions as SCHEMA has them, `hide` asked for each body."""
    records, count = part.records, len(part.records)
    asked, asked_bytes = _side(part, 0, hide)
    said, said_bytes = _side(part, 1, hide)
    micros = (records["at_ns"] // 1000).astype(np.int64)
    status = records["status"].astype(np.int16)
    return pa.Table.from_arrays(
        [
            _text(records["name"]),
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


def _text(fixed: np.ndarray[Any, Any]) -> pa.Array:
    # numpy leaves the zeros at the end out.
    return pa.array(np.ascontiguousarray(fixed), pa.binary()).cast(pa.string())


def _side(part: Part, number: int, hide: Hide | None) -> tuple[pa.Array, pa.Array]:
    """Return the texts and the bytes behind them of all inputs, or of all outputs."""
    bodies = part.side(number)
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
