"""Frames of the relay's connection. Each is one binary message of the WebSocket.

A frame is its kind (1 byte), the number of its stream (4 bytes, big-endian) and a payload. The
length is that of the message. Only the relay opens streams, with numbers that increase.

kind        stream  payload
OPEN        new     the target's name: begin a connection to it
DATA        any     bytes, no more than the receiver has granted
CREDIT      any     4 bytes: so many more bytes may be sent
END         any     nothing follows in this direction
RESET       any     the stream is over at once; the reason as UTF-8
REGISTER    0       a target as JSON, from the agent
UNREGISTER  0       the name of a target, from the agent
ANSWER      0       a `RegisterAnswer` as JSON, from the relay
"""

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from pydantic import BaseModel, ConfigDict

HEADER: Final = struct.Struct(">BI")
CREDIT: Final = struct.Struct(">I")
# A stream may send so much before it gets credit. Fast readers are granted more.
FIRST_WINDOW: Final = 64 << 10
MAX_WINDOW: Final = 1 << 20
MAX_DATA: Final = 128 << 10
MAX_FRAME: Final = HEADER.size + MAX_DATA
MAX_STREAMS: Final = 1024
# Sum of what all streams of a connection are granted beyond FIRST_WINDOW.
EXTRA_WINDOWS: Final = 64 << 20
MAX_STREAM_NUMBER: Final = 2**32 - 1
MAX_NAME: Final = 64
_MAX_TEXT: Final = 1000


class FrameKind(IntEnum):
    """The kinds of frames."""

    OPEN = 1
    DATA = 2
    CREDIT = 3
    END = 4
    RESET = 5
    REGISTER = 6
    UNREGISTER = 7
    ANSWER = 8


class ProtocolError(Exception):
    """The peer broke the protocol. Its connection is closed with this reason."""


class RegisterAnswer(BaseModel):
    """The relay's answer to REGISTER. Without `reason` the target has a door now.

    `is_final` means that the portal refuses the target: registering it again is useless.
    """

    model_config = ConfigDict(extra="forbid")

    name: str
    reason: str = ""
    is_final: bool = False


@dataclass(frozen=True)
class Frame:
    """One frame."""

    kind: FrameKind
    stream: int
    payload: memoryview

    @property
    def text(self) -> str:
        """The payload as a short text. Raises ProtocolError."""
        if len(self.payload) > _MAX_TEXT:
            raise ProtocolError(f"a {self.kind.name} frame is too long")
        try:
            return str(self.payload, "utf-8")
        except UnicodeDecodeError:
            raise ProtocolError(f"a {self.kind.name} frame is not UTF-8") from None

    @property
    def credit(self) -> int:
        """The number of bytes granted. Raises ProtocolError."""
        if len(self.payload) != CREDIT.size:
            raise ProtocolError("a CREDIT frame needs 4 bytes")
        return int(CREDIT.unpack(self.payload)[0])


def pack(kind: FrameKind, stream: int, payload: bytes | memoryview = b"") -> bytes:
    """Return the message of a frame."""
    return b"".join((HEADER.pack(kind, stream), payload))


def pack_text(kind: FrameKind, stream: int, text: str) -> bytes:
    """Return the message of a frame with a text, shortened if need be."""
    return pack(kind, stream, text.encode()[:_MAX_TEXT].decode(errors="ignore").encode())


def unpack(message: bytes | str) -> Frame:
    """Return the frame of a message. Raises ProtocolError."""
    if isinstance(message, str) or len(message) < HEADER.size:
        raise ProtocolError("a message is not a frame")
    kind, stream = HEADER.unpack_from(message)
    try:
        return Frame(FrameKind(kind), stream, memoryview(message)[HEADER.size :])
    except ValueError:
        raise ProtocolError(f"there is no frame of kind {kind}") from None
