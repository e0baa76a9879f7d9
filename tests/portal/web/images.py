"""Images for tests, as bytes."""

import struct
import zlib


def png(value: int = 128, width: int = 1, height: int = 1) -> bytes:
    """A PNG of one grey pixel that claims these dimensions."""
    chunks = [
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)),
        (b"IDAT", zlib.compress(bytes((0, value)))),
        (b"IEND", b""),
    ]
    framed = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(framed)
