"""Reader of capture log segments: parses blocks into the predictions of each revision."""

import os
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, Final, NamedTuple

import numpy as np
import orjson
import pyarrow as pa
from numpy.lib.stride_tricks import sliding_window_view

from workers.gateway.capture_log.arrow import Part, names_of, text_of
from workers.gateway.capture_log.format import (
    BLOCK,
    ID_BYTES,
    KEY_BYTES,
    MAGIC,
    MAGIC_PLAIN,
    PLAIN,
    RECORD,
)

_BYTES_BETWEEN_PAUSES: Final = 128 << 10
_MOST_BYTES: Final = 1 << 31
# `format.RECORD`, field by field.
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


class _Blocks(NamedTuple):
    """Offsets and counts of the blocks of one kind and context in a piece, and where they end."""

    places: list[int]
    counts: list[int]
    ends: list[int]


def read_parts(
    segment: BinaryIO, piece_bytes: int, pause: Callable[[], None]
) -> Iterator[list[Part]]:
    """Yield the predictions of a segment, about `piece_bytes` at a time.

    It ends before the first incomplete block. `pause` is called regularly, after little work each.
    """
    left = os.fstat(segment.fileno()).st_size
    at, needed = 0, BLOCK.size
    # Validate the length before reading, or read() would allocate it.
    while needed and needed <= left:
        segment.seek(at)
        piece = segment.read(max(piece_bytes, needed))
        if len(piece) < needed:
            return
        pause()
        values, end, needed = _complete_blocks(piece, pause)
        if values:
            parts = []
            for (magic, context), blocks in values.items():
                parts.append(_PART_OF[magic](piece, orjson.loads(context), blocks))
                pause()
            yield parts
        at += end
        left -= end


def _complete_blocks(
    piece: bytes, pause: Callable[[], None]
) -> tuple[dict[tuple[bytes, bytes], _Blocks], int, int]:
    """Return the complete blocks of a piece by kind and context, their end, and the bytes needed.

    The latter is the number of bytes to read from there to continue, or 0 after an invalid block.
    """
    values: dict[tuple[bytes, bytes], _Blocks] = {}
    unpack, head = BLOCK.unpack_from, BLOCK.size
    bytes_of = memoryview(piece)
    at, size, pause_at = 0, len(piece), _BYTES_BETWEEN_PAUSES
    while at + head <= size:
        magic, length, count, context_length, check = unpack(piece, at)
        start = at + head
        end = start + length
        if magic not in _PART_OF:
            return values, at, 0
        if end > size:
            return values, at, end - at
        if zlib.crc32(bytes_of[start:end]) != check:
            return values, at, 0
        place = start + context_length
        kind = magic, piece[start:place]
        if kind not in values:
            values[kind] = _Blocks([], [], [])
        blocks = values[kind]
        blocks.places.append(place)
        blocks.counts.append(count)
        blocks.ends.append(end)
        at = end
        if at > pause_at:
            pause()
            pause_at = at + _BYTES_BETWEEN_PAUSES
    return values, at, head


def _part(piece: bytes, context: dict[str, Any], blocks: _Blocks) -> Part:
    places, counts = np.array(blocks.places), np.array(blocks.counts)
    firsts = np.cumsum(counts) - counts
    number = np.arange(counts.sum()) - np.repeat(firsts, counts)
    letters = sliding_window_view(np.frombuffer(piece, np.uint8), RECORD.size)
    records = letters[np.repeat(places, counts) + number * RECORD.size].view(_RECORD)[:, 0]
    lengths = records["lengths"].astype(np.int64)
    before = np.concatenate([[0], np.cumsum(lengths.sum(axis=1))])
    # Three lengths per prediction: the bytes before it, its input, its output.
    ends = np.zeros(3 * len(records) + 1, np.int64)
    bodies = np.repeat(places + counts * RECORD.size - before[firsts], counts)
    ends[1::3] = bodies + before[:-1]
    ends[2::3] = ends[1::3] + lengths[:, 0]
    ends[3::3] = ends[2::3] + lengths[:, 1]
    whole = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(ends) - 1, [None, pa.py_buffer(ends), pa.py_buffer(piece)]
    )
    requested, value = (
        whole.take(pa.array(np.arange(side, len(ends) - 1, 3, dtype=np.int64))) for side in (1, 2)
    )
    return Part(
        context=context,
        names=names_of(records["name"]),
        at_ns=records["at_ns"],
        keys=text_of(records["key"]).dictionary_encode(),
        took_us=records["took_us"],
        requests=requested,
        responses=value,
        heads=records["heads"],
        contracts=records["contract"],
        flags=records["flags"],
        status=records["status"],
    )


def _plain_part(piece: bytes, context: dict[str, Any], blocks: _Blocks) -> Part:
    view = memoryview(piece)
    names, keys, requested, items = [], [], [], []
    moments, numbers = [], []
    for place, count, end in zip(*blocks, strict=True):
        at_ns, key_count = PLAIN.unpack_from(piece, place)
        moments.append(at_ns)
        at = place + PLAIN.size
        names.append(view[at : (at := at + ID_BYTES * count)])
        keys.append(piece[at : (at := at + KEY_BYTES * key_count)])
        reshape = np.frombuffer(piece, "<u4", 3 * count, at).reshape(3, count)
        numbers.append(reshape)
        at += 12 * count
        requested.append(view[at : (at := at + int(reshape[1].sum()))])
        items.append(view[at:end])
    took_us, asked_bytes, said_bytes = np.concatenate(numbers, axis=1)
    return Part(
        context=context,
        names=names_of(np.frombuffer(b"".join(names), f"S{ID_BYTES}")),
        at_ns=np.repeat(np.array(moments, np.uint64), blocks.counts),
        keys=_keys(keys, blocks.counts),
        took_us=took_us,
        requests=_bodies(requested, asked_bytes),
        responses=_bodies(items, said_bytes),
    )


def _keys(items: list[bytes], counts: list[int]) -> pa.Array:
    """Return the key of each prediction, from blocks with one key each or one for all."""
    first = items[0]
    if len(first) == KEY_BYTES and items.count(first) == len(items):
        word = pa.array([first.rstrip(b"\0").decode()])
        return pa.DictionaryArray.from_arrays(np.zeros(sum(counts), np.int32), word)
    whole = [
        keys if len(keys) == KEY_BYTES * count else keys * count
        for keys, count in zip(items, counts, strict=True)
    ]
    return text_of(np.frombuffer(b"".join(whole), f"S{KEY_BYTES}")).dictionary_encode()


def _bodies(parts: list[memoryview], lengths: np.ndarray[Any, Any]) -> pa.Array:
    ends = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=ends[1:])
    together = pa.py_buffer(b"".join(parts))
    if ends[-1] < _MOST_BYTES:
        small = pa.py_buffer(ends.astype(np.int32))
        return pa.BinaryArray.from_buffers(pa.binary(), len(lengths), [None, small, together])
    large = [None, pa.py_buffer(ends), together]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(lengths), large)


_PART_OF: Final = {MAGIC: _part, MAGIC_PLAIN: _plain_part}
