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
# prediction id, key id, Unix ns, latency us, input, output, JSON lengths of both, contract, flags,
# HTTP status
Entry = tuple[bytes, bytes, int, int, bytes, bytes, int, int, int, int, int]


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
