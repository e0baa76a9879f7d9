"""The format of the capture log: blocks of predictions that were answered or failed together.

A block is a header (magic, length of what follows, count, length of the context, CRC-32 of what
follows), a context as JSON (endpoint, revision, model, version), `count` records of fixed size and
then the inputs and outputs, one after the other. A block is written whole or it does not count: a
torn one at the end belongs to answers that never left.
"""

import struct
import zlib
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import orjson

BLOCK: Final = struct.Struct("<4sIIII")
# The last two bytes were nothing once: a status of 0 is one of before there was any.
RECORD: Final = struct.Struct("<30s64sQIIIIIBBH")
MAGIC: Final = b"SLC1"
SHADOW: Final = 1
OPEN: Final = ".open"
SEALED: Final = ".seg"
# prediction id, key id, Unix ns, latency us, input, output, JSON lengths of both, contract, flags,
# HTTP status
Entry = tuple[bytes, bytes, int, int, bytes, bytes, int, int, int, int, int]


class Prediction(NamedTuple):
    """One captured prediction. `*_head` is the length of the JSON before binary tensors, or 0."""

    context: dict[str, Any]
    prediction_id: str
    key_id: str
    at_unix_ns: int
    latency_us: int
    request: bytes
    response: bytes
    request_head: int
    response_head: int
    contract: int
    is_shadow: bool
    status: int


def pack_block(context: bytes, entries: list[Entry]) -> bytes:
    """Return predictions of one revision as a block."""
    pack = RECORD.pack
    parts = [context]
    parts += [
        pack(e[0], e[1], e[2], e[3], len(e[4]), len(e[5]), e[6], e[7], e[8], e[9], e[10])
        for e in entries
    ]
    for entry in entries:
        parts.append(entry[4])
        parts.append(entry[5])
    body = b"".join(parts)
    return BLOCK.pack(MAGIC, len(body), len(entries), len(context), zlib.crc32(body)) + body


def read_blocks(data: bytes) -> Iterator[Prediction]:
    """Yield the predictions of a segment, up to the first block that is not whole."""
    at = 0
    while at + BLOCK.size <= len(data):
        magic, length, count, context_length, check = BLOCK.unpack_from(data, at)
        body = data[at + BLOCK.size : at + BLOCK.size + length]
        if magic != MAGIC or len(body) != length or zlib.crc32(body) != check:
            return
        context = orjson.loads(body[:context_length])
        place = context_length + count * RECORD.size
        for record in RECORD.iter_unpack(body[context_length:place]):
            name, key, at_ns, took, asked, said, asked_head, said_head, contract = record[:9]
            flags, status = record[9:]
            middle = place + asked
            yield Prediction(
                context,
                name.rstrip(b"\0").decode(),
                key.rstrip(b"\0").decode(),
                at_ns,
                took,
                body[place:middle],
                body[middle : middle + said],
                asked_head,
                said_head,
                contract,
                bool(flags & SHADOW),
                status or 200,
            )
            place = middle + said
        at += BLOCK.size + length
