"""Event files of TensorBoard (`events.out.tfevents.*`), read without TensorFlow or TensorBoard.

A file is a sequence of records (tensorflow/core/lib/io/record_writer.h): length as a 64-bit little
endian number, its masked CRC-32C, the data, their masked CRC-32C. Each record is a message `Event`
of tensorflow/core/util/event.proto, with a `Summary` of framework/summary.proto. Of these the
fields named below are decoded, by the encoding on protobuf.dev/programming-guides/encoding.

Files are hostile: each length is compared with what is left before it is used, what does not fit
ends the file, and tags, points, images and bytes of the result are limited.
"""

import base64
import math
import struct
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from portal.experiments.results.images import HEADER_BYTES, ImageRefused, checked_image

MOST_TAGS = 300
MOST_POINTS = 500
MOST_HISTOGRAMS = 20
MOST_BUCKETS = 60
MOST_IMAGES = 60
MOST_IMAGE_BYTES = 2 * 1024**2
MOST_IMAGES_BYTES = 8 * 1024**2
_MOST_TAG_CHARACTERS = 200
_MOST_VALUES = 1_000
# Checksums in Python cost a microsecond for ten bytes; torn records are found by the length's.
_CHECKED_BYTES = 2_048
_HEAD_BYTES = 12
_DTYPES = {1: "f", 2: "d", 3: "i", 9: "q"}


@dataclass
class Series:
    """Values of one tag. Every `stride`-th of `total` is stored, twice `most` at the most."""

    most: int
    total: int = 0
    stride: int = 1
    points: list[Any] = field(default_factory=list)

    def add(self, point: Any) -> None:
        """Store a value, or count it alone."""
        if self.total % self.stride == 0:
            self.points.append(point)
            if len(self.points) > 2 * self.most:
                self.points = self.points[::2]
                self.stride *= 2
        self.total += 1


@dataclass
class _Collected:
    folder: str = ""
    scalars: dict[tuple[str, str], Series] = field(default_factory=dict)
    histograms: dict[tuple[str, str], Series] = field(default_factory=dict)
    images: list[dict[str, Any]] = field(default_factory=list)
    plugins: dict[tuple[str, str], str] = field(default_factory=dict)
    image_bytes: int = 0
    left_out: dict[str, int] = field(default_factory=dict)

    def skip(self, reason: str) -> None:
        self.left_out[reason] = self.left_out.get(reason, 0) + 1


def read_events(files: Sequence[bytes], *, folders: Sequence[str]) -> dict[str, Any]:
    """Return the scalars, histograms and images of event files, and what is left out of them.

    `folders` names the series of each file. `scalars` are {tag, folder, total, points: [[step, wall
    time in s, value]]}, where a value that is no finite number is its name. `histograms` are {tag,
    folder, total, steps: [{step, edges, counts}]}. `images` are {tag, folder, step, source}, with a
    data URL. `damaged` is the number of files that end before their last byte.
    """
    collected = _Collected()
    damaged = 0
    for content, folder in zip(files, folders, strict=True):
        collected.folder = folder
        read = 0
        for record in _records(content):
            read += _HEAD_BYTES + len(record) + 4
            try:
                _event(record, collected)
            except (ValueError, struct.error, IndexError, OverflowError):
                collected.skip("records that cannot be decoded")
        damaged += read < len(content)
    return {
        "scalars": [
            {"tag": tag, "folder": name, "total": it.total, "points": sorted(it.points, key=_step)}
            for (tag, name), it in sorted(collected.scalars.items())
        ],
        "histograms": [
            {
                "tag": tag,
                "folder": name,
                "total": it.total,
                "steps": sorted(it.points, key=lambda point: int(point["step"])),
            }
            for (tag, name), it in sorted(collected.histograms.items())
        ],
        "images": sorted(collected.images, key=lambda it: (it["tag"], it["folder"], it["step"])),
        "left_out": [f"{reason}: {count:,}" for reason, count in collected.left_out.items()],
        "damaged": damaged,
    }


def _step(point: list[Any]) -> int:
    return int(point[0])


def _records(content: bytes) -> Iterator[bytes]:
    """Yield the records of a file. Ends before the first that is damaged."""
    at = 0
    while at + _HEAD_BYTES <= len(content):
        head = content[at : at + 8]
        (length,) = struct.unpack("<Q", head)
        (checksum,) = struct.unpack("<I", content[at + 8 : at + _HEAD_BYTES])
        end = at + _HEAD_BYTES + length + 4
        if checksum != _masked_crc(head) or end > len(content):
            return
        record = content[at + _HEAD_BYTES : end - 4]
        if length <= _CHECKED_BYTES:
            (checksum,) = struct.unpack("<I", content[end - 4 : end])
            if checksum != _masked_crc(record):
                return
        yield record
        at = end


def _event(record: bytes, collected: _Collected) -> None:
    wall_time, step, summary = 0.0, 0, b""
    for number, value in _fields(record):
        if number == 1 and isinstance(value, bytes):
            (wall_time,) = struct.unpack("<d", value)
        elif number == 2 and isinstance(value, int):
            step = _signed(value)
        elif number == 5 and isinstance(value, bytes):
            summary = value
    if not math.isfinite(wall_time):
        wall_time = 0.0
    for number, value in _fields(summary):
        if number == 1 and isinstance(value, bytes):
            _value(value, step, wall_time, collected)


def _value(message: bytes, step: int, wall_time: float, collected: _Collected) -> None:
    """Store one `Summary.Value`."""
    fields: dict[int, Any] = dict(_fields(message))
    tag = bytes(fields.get(1, b"")).decode(errors="replace")[:_MOST_TAG_CHARACTERS]
    if isinstance(fields.get(9), bytes) and len(collected.plugins) < MOST_TAGS * 4:
        plugin = dict(_fields(fields[9])).get(1)
        if isinstance(plugin, bytes):
            name = dict(_fields(plugin)).get(1, b"")
            collected.plugins.setdefault(
                (tag, collected.folder), bytes(name).decode(errors="replace")
            )
    if isinstance(fields.get(2), bytes):
        (number,) = struct.unpack("<f", fields[2])
        _add_scalar(collected, tag, step, wall_time, number)
    elif isinstance(fields.get(5), bytes):
        _add_histogram(collected, tag, step, *_classic_histogram(fields[5]))
    elif isinstance(fields.get(4), bytes):
        encoded = dict(_fields(fields[4])).get(4)
        if isinstance(encoded, bytes):
            _add_image(collected, tag, step, encoded)
    elif isinstance(fields.get(8), bytes):
        _tensor(fields[8], tag, step, wall_time, collected)
    else:
        collected.skip("values of kinds that are not shown (text, audio, graphs)")


def _tensor(message: bytes, tag: str, step: int, wall_time: float, collected: _Collected) -> None:
    """Store a `TensorProto`, by the plugin that the first value of the tag names."""
    plugin = collected.plugins.get((tag, collected.folder), "")
    if plugin == "images":
        strings = [value for number, value in _fields(message) if number == 8]
        for encoded in strings[2 : 2 + MOST_IMAGES]:  # after width and height
            _add_image(collected, tag, step, encoded)
        return
    if plugin not in ("scalars", "histograms"):
        collected.skip("values of kinds that are not shown (text, audio, graphs)")
        return
    numbers = _tensor_numbers(message)
    if plugin == "scalars":
        if numbers:
            _add_scalar(collected, tag, step, wall_time, numbers[0])
        return
    rows = [numbers[at : at + 3] for at in range(0, len(numbers) - 2, 3)]
    edges = [rows[0][0], *(row[1] for row in rows)] if rows else []
    _add_histogram(collected, tag, step, edges, [row[2] for row in rows])


def _tensor_numbers(message: bytes) -> list[float]:
    """Return the first numbers of a tensor, from its content or from its typed values."""
    kind, content = 1, b""
    values: list[float] = []
    for number, value in _fields(message):
        if number == 1 and isinstance(value, int):
            kind = value
        elif number == 4 and isinstance(value, bytes):
            content = value
        elif number in (5, 6) and isinstance(value, bytes):
            values += _numbers(value, "f" if number == 5 else "d")
        elif number in (7, 10):
            packed = [value] if isinstance(value, int) else _varints(value)
            values += [float(_signed(it)) for it in packed]
    return _numbers(content, _DTYPES.get(kind, "")) if content else values[:_MOST_VALUES]


def _numbers(content: bytes, code: str) -> list[float]:
    if not code:
        return []
    size = struct.calcsize(f"<{code}")
    count = min(len(content) // size, _MOST_VALUES)
    return [float(it) for it in struct.unpack(f"<{count}{code}", content[: count * size])]


def _classic_histogram(message: bytes) -> tuple[list[float], list[float]]:
    """Return edges and counts of a `HistogramProto`, whose outer limits are ±1.8e308."""
    low = high = 0.0
    limits: list[float] = []
    counts: list[float] = []
    for number, value in _fields(message):
        if not isinstance(value, bytes):
            continue
        if number in (1, 2):
            (bound,) = struct.unpack("<d", value)
            low, high = (bound, high) if number == 1 else (low, bound)
        elif number == 6:
            limits += _numbers(value, "d")
        elif number == 7:
            counts += _numbers(value, "d")
    count = min(len(limits), len(counts))
    edges = [low, *(min(max(limit, low), high) for limit in limits[:count])]
    return edges, counts[:count]


def _add_scalar(collected: _Collected, tag: str, step: int, wall_time: float, value: float) -> None:
    series = _series(collected, collected.scalars, tag, MOST_POINTS)
    if series is not None:
        series.add([step, wall_time, value if math.isfinite(value) else _odd(value)])


def _odd(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _add_histogram(
    collected: _Collected, tag: str, step: int, edges: list[float], counts: list[float]
) -> None:
    if not counts or not all(map(math.isfinite, (*edges, *counts))):
        collected.skip("histograms that are empty or have infinite limits")
        return
    series = _series(collected, collected.histograms, tag, MOST_HISTOGRAMS)
    if series is not None:
        edges, counts = rebinned(edges, counts)
        series.add({"step": step, "edges": edges, "counts": counts})


def rebinned(edges: list[float], counts: list[float]) -> tuple[list[float], list[float]]:
    """Return a histogram with at most MOST_BUCKETS buckets, each of several neighbours."""
    width = math.ceil(len(counts) / MOST_BUCKETS)
    if width == 1:
        return edges, counts
    groups = range(0, len(counts), width)
    return (
        [edges[0], *(edges[min(at + width, len(counts))] for at in groups)],
        [sum(counts[at : at + width]) for at in groups],
    )


def _add_image(collected: _Collected, tag: str, step: int, encoded: Any) -> None:
    if not isinstance(encoded, bytes) or len(encoded) > MOST_IMAGE_BYTES:
        collected.skip(f"images larger than {MOST_IMAGE_BYTES // 1024**2} MiB")
        return
    collected.image_bytes += len(encoded)
    if len(collected.images) >= MOST_IMAGES or collected.image_bytes > MOST_IMAGES_BYTES:
        collected.skip("more images")
        return
    try:
        mime = checked_image(encoded[:HEADER_BYTES]).mime
    except ImageRefused:
        collected.skip("images that are damaged or have too many pixels")
        return
    source = f"data:{mime};base64,{base64.b64encode(encoded).decode()}"
    entry = {"tag": tag, "folder": collected.folder, "step": step, "source": source}
    collected.images.append(entry)


def _series(
    collected: _Collected, by_tag: dict[tuple[str, str], Series], tag: str, most: int
) -> Series | None:
    key = (tag, collected.folder)
    if key not in by_tag and len(by_tag) >= MOST_TAGS:
        collected.skip("values of more tags")
        return None
    return by_tag.setdefault(key, Series(most))


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of the fields of a message: varints as int, others as bytes.

    Raises ValueError or IndexError for what is no message.
    """
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        number, kind = tag >> 3, tag & 7
        if kind == 0:
            value, at = _varint(message, at)
            yield number, value
            continue
        if kind == 2:
            length, at = _varint(message, at)
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
        else:
            raise ValueError(kind)
        if length > len(message) - at:
            raise ValueError(length)
        yield number, message[at : at + length]
        at += length


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError(value)


def _varints(content: bytes | int) -> list[int]:
    values: list[int] = []
    at = 0
    while isinstance(content, bytes) and at < len(content) and len(values) < _MOST_VALUES:
        value, at = _varint(content, at)
        values.append(value)
    return values


def _signed(value: int) -> int:
    value &= 2**64 - 1
    return value - 2**64 if value >= 2**63 else value


def _crc_table() -> "array[int]":
    table = array("L")
    for number in range(256):
        value = number
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


_CRC = _crc_table()


def _masked_crc(data: bytes) -> int:
    """Return the CRC-32C of bytes as TFRecord masks it (tensorflow/core/lib/hash/crc32c.h)."""
    value = 0xFFFFFFFF
    for byte in data:
        value = _CRC[(value ^ byte) & 0xFF] ^ value >> 8
    value ^= 0xFFFFFFFF
    return ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF
