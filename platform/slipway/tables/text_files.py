"""Files of text as UTF-8 in chunks, whatever their encoding."""

import codecs
from collections.abc import Iterator
from typing import IO

from slipway.tables.errors import Unreadable

CHUNK_BYTES = 4 * 1024**2
# Longer marks first: the mark of UTF-32 begins with that of UTF-16.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def open_text(source: IO[bytes], declared: str | None) -> tuple[str, Iterator[bytes]]:
    """Return the encoding of a file, and its text as chunks of UTF-8 without a byte order mark.

    A byte order mark decides, then the declaration. Otherwise it is UTF-8, which is not verified
    here.
    """
    first = source.read(CHUNK_BYTES)
    encoding = next((name for mark, name in _MARKS if first.startswith(mark)), declared or "utf-8")
    if encoding == "utf-8":
        return encoding, _chunks(source, first.removeprefix(codecs.BOM_UTF8))
    return encoding, _decoded(_chunks(source, first), encoding)


def _chunks(source: IO[bytes], first: bytes) -> Iterator[bytes]:
    chunk = first
    while chunk:
        yield chunk
        chunk = source.read(CHUNK_BYTES)


def _decoded(chunks: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(encoding)("strict")
    line = 1
    try:
        for chunk in chunks:
            text = decoder.decode(chunk)
            line += text.count("\n")
            yield text.encode()
        yield decoder.decode(b"", final=True).encode()
    except UnicodeError as error:
        raise Unreadable(
            f"The text is not {encoding}: {error}. Declare its encoding.", line
        ) from error


def require_no_nul(block: bytes, line: int) -> None:
    """Raise Unreadable for a NUL character, which no text has."""
    at = block.find(b"\0")
    if at >= 0:
        raise Unreadable(
            "The line holds a NUL character, so this is no UTF-8 text. If it is UTF-16 without a "
            "byte order mark, declare the encoding utf-16-le or utf-16-be.",
            line + block.count(b"\n", 0, at),
        )
