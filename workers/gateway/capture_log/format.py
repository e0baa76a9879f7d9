"""The format of the capture log: blocks of predictions that were answered or failed together.

A block is a header (magic, length of the rest, count, length of the context, CRC-32 of the rest), a
context as JSON (endpoint, revision, model, version), `count` records of fixed size and then the
inputs and outputs, one after the other. An incomplete block is ignored: a torn one at the end
belongs to responses that never left. `capture_log.reader` reads them.

Nearly all predictions are successful, in JSON without tensors. Those of the same time form a plain
block of columns: after the context PLAIN (the time, and the number of keys: one, if all have the
same), then `count` ids, the keys, `count` latencies in microseconds, lengths of inputs and lengths
of outputs (u32 each), then all inputs and then all outputs.
"""

import struct
import zlib
from collections.abc import Sequence
from functools import cache
from typing import Final

BLOCK: Final = struct.Struct("<4sIIII")
# The last two bytes were padding in old files: status 0 means "unknown".
RECORD: Final = struct.Struct("<30s64sQIIIIIBBH")
PLAIN: Final = struct.Struct("<QI")
ID_BYTES: Final = 30
KEY_BYTES: Final = 64
MAGIC: Final = b"SLC1"
MAGIC_PLAIN: Final = b"SLC2"
# Flags of a record.
SHADOW: Final = 1
FALLBACK: Final = 2
OPEN: Final = ".open"
SEALED: Final = ".seg"
# Lines on the shipper's standard output when it begins to work, and when it is idle again.
AT_WORK: Final = b"working\n"
AT_REST: Final = b"resting\n"
# A record, and the input and the output of its prediction.
Entry = tuple[bytes, bytes, bytes]


def entry(
    prediction_id: bytes,
    key_id: bytes,
    at_unix_ns: int,
    latency_us: int,
    requested: bytes,
    data: bytes,
    asked_head: int,
    said_head: int,
    contract: int,
    flags: int,
    status: int,
) -> Entry:
    """Return a prediction for a block. The heads are the lengths of the JSON before the tensors."""
    lengths = (len(requested), len(data), asked_head, said_head)
    record = RECORD.pack(
        prediction_id, key_id, at_unix_ns, latency_us, *lengths, contract, flags, status
    )
    return record, requested, data


def pack_block(context: bytes, entries: list[Entry]) -> bytes:
    """Return predictions of one revision as a block."""
    parts = [context]
    parts += [record for record, _, _ in entries]
    for _, requested, data in entries:
        parts.append(requested)
        parts.append(data)
    return _block(MAGIC, len(entries), context, parts)


def pack_plain_block(
    context: bytes,
    at_unix_ns: int,
    names: Sequence[bytes],
    keys: Sequence[bytes],
    latencies_us: Sequence[int],
    requested: Sequence[bytes],
    items: Sequence[bytes],
) -> bytes:
    """Return successful JSON scoring predictions of one time and revision as a plain block.

    `names` are ids of ID_BYTES. Every other sequence has one item for each of them.
    """
    item = keys[0]
    values = [item] if keys.count(item) == len(keys) else keys
    lengths = _numbers(3 * len(names)).pack(*latencies_us, *map(len, requested), *map(len, items))
    parts = [context, PLAIN.pack(at_unix_ns, len(values)), *names]
    parts += [key.ljust(KEY_BYTES, b"\0") for key in values]
    parts.append(lengths)
    parts += requested
    parts += items
    return _block(MAGIC_PLAIN, len(names), context, parts)


@cache
def _numbers(count: int) -> struct.Struct:
    return struct.Struct(f"<{count}I")


def _block(magic: bytes, count: int, context: bytes, parts: list[bytes]) -> bytes:
    body = b"".join(parts)
    return BLOCK.pack(magic, len(body), count, len(context), zlib.crc32(body)) + body
