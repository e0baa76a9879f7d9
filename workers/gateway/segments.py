"""The format of the capture log: blocks of predictions that were answered or failed together.

A block is a header (magic, length of what follows, count, length of the context, CRC-32 of what
follows), a context as JSON (endpoint, revision, model, version), `count` records of fixed size and
then the inputs and outputs, one after the other. A block is written whole or it does not count: a
torn one at the end belongs to answers that never left. `workers.gateway.columns` reads them.
"""

import struct
import zlib
from typing import Final

BLOCK: Final = struct.Struct("<4sIIII")
# The last two bytes were nothing once: a status of 0 is one of before there was any.
RECORD: Final = struct.Struct("<30s64sQIIIIIBBH")
MAGIC: Final = b"SLC1"
SHADOW: Final = 1
OPEN: Final = ".open"
SEALED: Final = ".seg"
# What the shipper says on its standard output when it begins to work, and when all is done.
AT_WORK: Final = b"working\n"
AT_REST: Final = b"resting\n"
# A record, and the input and the output of its prediction.
Entry = tuple[bytes, bytes, bytes]


def entry(
    prediction_id: bytes,
    key_id: bytes,
    at_unix_ns: int,
    latency_us: int,
    asked: bytes,
    said: bytes,
    asked_head: int,
    said_head: int,
    contract: int,
    flags: int,
    status: int,
) -> Entry:
    """Return a prediction for a block; the heads are lengths of JSON that stands before tensors."""
    lengths = (len(asked), len(said), asked_head, said_head)
    record = RECORD.pack(
        prediction_id, key_id, at_unix_ns, latency_us, *lengths, contract, flags, status
    )
    return record, asked, said


def pack_block(context: bytes, entries: list[Entry]) -> bytes:
    """Return predictions of one revision as a block."""
    parts = [context]
    parts += [record for record, _, _ in entries]
    for _, asked, said in entries:
        parts.append(asked)
        parts.append(said)
    body = b"".join(parts)
    return BLOCK.pack(MAGIC, len(body), len(entries), len(context), zlib.crc32(body)) + body
