"""Server-Sent Events: reading text/event-stream as it arrives, in bounded memory."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from slipway.errors import UnexpectedAnswer

MEDIA_TYPE = "text/event-stream"
LONGEST_EVENT_BYTES = 16 * 1024**2
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class ServerEvent:
    """One event. `id` is the latest the stream has named, to be sent back as Last-Event-ID."""

    name: str
    data: bytes
    id: str


def read_events(pieces: Iterable[bytes], *, last_id: str = "") -> Iterator[ServerEvent]:
    """Yield the events of a stream. One that is cut off at the end is not yielded.

    Raises UnexpectedAnswer for an event that does not end.
    """
    name, data = "", list[bytes]()
    size_bytes = 0
    for line in _lines(pieces):
        if not line:
            if data:
                yield ServerEvent(name or "message", b"\n".join(data), last_id)
            name, data, size_bytes = "", [], 0
            continue
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            data.append(value)
            size_bytes += len(value)
            if size_bytes > LONGEST_EVENT_BYTES:
                raise _endless()
        elif field == b"event":
            name = value.decode(errors="replace")
        elif field == b"id" and b"\0" not in value:
            last_id = value.decode(errors="replace")


def _lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield lines without their ends: line feed, carriage return, or both."""
    begun: list[bytes] = []
    begun_bytes = 0
    after_return = is_inside = False
    for piece in pieces:
        if not is_inside and piece:
            is_inside = True
            piece = piece.removeprefix(_BOM)
        if after_return and piece:
            piece = piece.removeprefix(b"\n")  # the second byte of a line end already read
            after_return = False
        after_return = after_return or piece.endswith(b"\r")
        if b"\r" in piece:
            piece = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        first, *rest = piece.split(b"\n")
        begun.append(first)
        begun_bytes += len(first)
        if begun_bytes > LONGEST_EVENT_BYTES:
            raise _endless()
        if rest:
            yield b"".join(begun)
            yield from rest[:-1]
            begun, begun_bytes = [rest[-1]], len(rest[-1])


def _endless() -> UnexpectedAnswer:
    return UnexpectedAnswer(
        f"The server sent an event of more than {LONGEST_EVENT_BYTES // 1024**2} MiB.",
        next_step="Check that the server and this SDK are of the same version.",
    )
