"""Frames between gateway and replica: many requests in one, many responses in one.

A frame is the length of the rest (u32), its kind (u8), a zero byte, a count (u16), and a payload,
all little-endian. The payload of REQUESTS and ANSWERS is `count` records of fixed size and then the
bodies, one after the other, so that a hundred requests cost one write and one read. Nearly all
requests are scoring in JSON without tensors. They use PLAIN_REQUESTS if the replica's WELCOME
states that it accepts those: their numbers are consecutive, so the payload holds only the first,
then the lengths of all bodies, then the bodies. PLAIN_ANSWERS have the same layout, for responses
with status 200 and JSON, and include the queue time of all of them.

The replica opens with CHALLENGE (its nonce). The gateway proves by HELLO that it knows the secret
without sending it. The replica proves the same by WELCOME, which also describes the model that it
serves. Before that nothing else is accepted, and frames stay small. DRAIN asks the gateway to send
nothing new.
"""

import hashlib
import hmac
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from typing import Final, NamedTuple

from slipway.schemas.base import AnswerSchema
from slipway.schemas.serving import Signature

HEADER: Final = struct.Struct("<IBBH")
REQUEST: Final = struct.Struct("<IIIB3x")
ANSWER: Final = struct.Struct("<IIIHBxI")
_PLAIN_REQUESTS: Final = struct.Struct("<I")
_PLAIN_ANSWERS: Final = struct.Struct("<II")
_AFTER_LENGTH: Final = HEADER.size - 4
# Header and record of a frame with one message, in one step to reduce a single client's latency.
_ONE_REQUEST: Final = struct.Struct("<IBBHIIIB3x")
_ONE_ANSWER: Final = struct.Struct("<IBBHIIIHBxI")
# Creates a named tuple without its __new__, which costs more than all other operations on it.
new: Final = tuple.__new__
NONCE_BYTES: Final = 32
MAC_BYTES: Final = 32
MAX_COUNT: Final = 4096
# Request numbers are below this.
NUMBERS: Final = 1 << 32
# Frame size limits before and after authentication of the peer.
SMALL_FRAME_BYTES: Final = 4096
LARGE_FRAME_BYTES: Final = 3 * 1024**3


class Kind(IntEnum):
    """Kinds of frames."""

    CHALLENGE = 1
    HELLO = 2
    WELCOME = 3
    REQUESTS = 4
    ANSWERS = 5
    DRAIN = 6
    PLAIN_REQUESTS = 7
    PLAIN_ANSWERS = 8


_REQUESTS: Final = int(Kind.REQUESTS)
_ANSWERS: Final = int(Kind.ANSWERS)


class Contract(IntEnum):
    """The language a request is written in, and its answer must be."""

    SCORING = 0
    SCORING_CSV = 1
    INFER = 2


class Content(IntEnum):
    """The media type of an answer's body."""

    JSON = 0
    BINARY = 1
    PROBLEM = 2


class Welcome(AnswerSchema):
    """Description of a replica's model. `forward_ms` is a warm prediction of one row.

    Old replicas, without support for PLAIN_REQUESTS, do not send `takes_plain`.
    """

    replica_id: str
    revision_id: str
    model: str
    model_version: str
    platform: str
    signature: Signature
    forward_ms: float
    max_rows: int
    takes_plain: bool = False


class BrokenFrame(Exception):
    """The bytes are no valid frame of this protocol. The connection has to be closed."""


@dataclass(slots=True)
class Frame:
    """One frame as it came."""

    kind: int
    count: int
    payload: bytes


class RequestFrame(NamedTuple):
    """A request in a frame. `head_len` is the length of the JSON before binary tensors, or 0."""

    number: int
    contract: int
    head_len: int
    body: bytes


class ResponseFrame(NamedTuple):
    """A response in a frame. `queue_us` is the time the request waited for its forward pass."""

    number: int
    status: int
    content: int
    head_len: int
    queue_us: int
    body: bytes


def frame(kind: Kind, payload: bytes = b"", count: int = 0) -> bytes:
    """Return one frame as bytes."""
    return HEADER.pack(len(payload) + _AFTER_LENGTH, kind, 0, count) + payload


class FrameReader:
    """Cuts what arrives into frames. `limit_bytes` bounds a frame before it is collected."""

    def __init__(self, limit_bytes: int = SMALL_FRAME_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self._held = bytearray()

    @property
    def is_mid_frame(self) -> bool:
        """True if the next bytes continue an incomplete frame."""
        return bool(self._held)

    def feed(self, data: bytes) -> list[Frame]:
        """Return the frames that are now complete. Raises BrokenFrame."""
        if self._held:
            self._held += data
            if len(self._held) < HEADER.size or len(self._held) < self._length(self._held):
                return []
            data = bytes(self._held)
            self._held.clear()
        frames = []
        at, size = 0, len(data)
        while size - at >= HEADER.size:
            length, kind, _, count = HEADER.unpack_from(data, at)
            if length > self.limit_bytes or length < _AFTER_LENGTH:
                raise BrokenFrame(f"a frame of {length} bytes")
            end = at + 4 + length
            if end > size:
                break
            frames.append(Frame(kind, count, data[at + HEADER.size : end]))
            at = end
        if at < size:
            self._held += data[at:]
        return frames

    def _length(self, data: bytearray) -> int:
        length = int.from_bytes(data[:4], "little")
        if length > self.limit_bytes or length < _AFTER_LENGTH:
            raise BrokenFrame(f"a frame of {length} bytes")
        return length + 4


def pack_requests(requests: list[tuple[int, int, int, bytes]]) -> bytes:
    """Return a frame of (number, contract, head_len, body), at most MAX_COUNT of them."""
    if len(requests) == 1:
        number, kind, head, body = requests[0]
        size = len(body)
        length = _AFTER_LENGTH + REQUEST.size + size
        return _ONE_REQUEST.pack(length, _REQUESTS, 0, 1, number, size, head, kind) + body
    pack = REQUEST.pack
    records = [pack(number, len(body), head, kind) for number, kind, head, body in requests]
    records += [request[3] for request in requests]
    return frame(Kind.REQUESTS, b"".join(records), len(requests))


def single_request(data: bytes) -> RequestFrame | None:
    """Return the request if the data is exactly one frame with one request, else None."""
    if len(data) < _ONE_REQUEST.size:
        return None
    length, kind, _, count, number, size, head, contract = _ONE_REQUEST.unpack_from(data)
    if kind != _REQUESTS or count != 1 or not length + 4 == len(data) == _ONE_REQUEST.size + size:
        return None
    return new(RequestFrame, (number, contract, head, data[_ONE_REQUEST.size :]))


def single_answer(data: bytes) -> ResponseFrame | None:
    """Return the response if the data is exactly one frame with one response, else None."""
    if len(data) < _ONE_ANSWER.size:
        return None
    length, kind, _, count, number, size, head, status, content, us = _ONE_ANSWER.unpack_from(data)
    if kind != _ANSWERS or count != 1 or not length + 4 == len(data) == _ONE_ANSWER.size + size:
        return None
    return new(ResponseFrame, (number, status, content, head, us, data[_ONE_ANSWER.size :]))


def unpack_requests(received: Frame) -> list[RequestFrame]:
    """Return the requests of a frame. Raises BrokenFrame."""
    payload, at = received.payload, received.count * REQUEST.size
    if at > len(payload):
        raise BrokenFrame("records are cut short")
    request_frame = []
    for number, length, head, contract in REQUEST.iter_unpack(payload[:at]):
        end = at + length
        request_frame.append(new(RequestFrame, (number, contract, head, payload[at:end])))
        at = end
    if at != len(payload):
        raise BrokenFrame("lengths do not add up")
    return request_frame


def pack_answers(answers: list[ResponseFrame]) -> bytes:
    """Return a frame of answers, at most MAX_COUNT of them."""
    if len(answers) == 1:
        number, status, content, head, queue_us, body = answers[0]
        size = len(body)
        length = _AFTER_LENGTH + ANSWER.size + size
        record = (number, size, head, status, content, queue_us)
        return _ONE_ANSWER.pack(length, _ANSWERS, 0, 1, *record) + body
    pack = ANSWER.pack
    records = [
        pack(number, len(body), head, status, content, queue_us)
        for number, status, content, head, queue_us, body in answers
    ]
    records += [answer[5] for answer in answers]
    return frame(Kind.ANSWERS, b"".join(records), len(answers))


def unpack_answers(received: Frame) -> list[ResponseFrame]:
    """Return the responses of a frame. Raises BrokenFrame."""
    payload, at = received.payload, received.count * ANSWER.size
    if at > len(payload):
        raise BrokenFrame("records are cut short")
    response_frame = []
    for number, length, head, status, content, queue_us in ANSWER.iter_unpack(payload[:at]):
        end = at + length
        response_frame.append(
            new(ResponseFrame, (number, status, content, head, queue_us, payload[at:end]))
        )
        at = end
    if at != len(payload):
        raise BrokenFrame("lengths do not add up")
    return response_frame


def pack_plain_requests(first: int, bodies: Sequence[bytes]) -> bytes:
    """Return a frame of at most MAX_COUNT scoring requests, numbered from `first` on."""
    head = _PLAIN_REQUESTS.pack(first)
    return frame(Kind.PLAIN_REQUESTS, _packed(head, bodies), len(bodies))


def unpack_plain_requests(received: Frame) -> tuple[int, list[bytes]]:
    """Return the first number and the bodies of all requests. Raises BrokenFrame."""
    bodies = _bodies(received, _PLAIN_REQUESTS.size)
    (first,) = _PLAIN_REQUESTS.unpack_from(received.payload)
    return _check_numbers(first, len(bodies)), bodies


def pack_plain_answers(first: int, queue_us: int, bodies: Sequence[bytes]) -> bytes:
    """Return a frame of good answers to requests numbered from `first` on, which waited as long."""
    head = _PLAIN_ANSWERS.pack(first, queue_us)
    return frame(Kind.PLAIN_ANSWERS, _packed(head, bodies), len(bodies))


def unpack_plain_answers(received: Frame) -> tuple[int, int, list[bytes]]:
    """Return the first number, the common queue time, and the bodies. Raises BrokenFrame."""
    bodies = _bodies(received, _PLAIN_ANSWERS.size)
    first, queue_us = _PLAIN_ANSWERS.unpack_from(received.payload)
    return _check_numbers(first, len(bodies)), queue_us, bodies


@cache
def _lengths(count: int) -> struct.Struct:
    return struct.Struct(f"<{count}I")


def _packed(head: bytes, bodies: Sequence[bytes]) -> bytes:
    return b"".join([head, _lengths(len(bodies)).pack(*map(len, bodies)), *bodies])


def _bodies(received: Frame, head: int) -> list[bytes]:
    payload, lengths = received.payload, _lengths(received.count)
    at = head + lengths.size
    if at > len(payload):
        raise BrokenFrame("lengths are cut short")
    bodies = []
    for length in lengths.unpack_from(payload, head):
        end = at + length
        bodies.append(payload[at:end])
        at = end
    if at != len(payload):
        raise BrokenFrame("lengths do not add up")
    return bodies


def _check_numbers(first: int, count: int) -> int:
    if first + count > NUMBERS:
        raise BrokenFrame("there are no such numbers")
    return first


def proof(role: bytes, secret: str, challenge: bytes, own: bytes) -> bytes:
    """Return the MAC that proves to the sender of `challenge` that `role` knows the secret."""
    return hmac.new(secret.encode(), role + challenge + own, hashlib.sha256).digest()


def proved(role: bytes, secret: str, challenge: bytes, theirs: bytes, mac: bytes) -> bool:
    """Return whether the other side, `role`, proved that it knows the secret."""
    return hmac.compare_digest(proof(role, secret, challenge, theirs), mac)
