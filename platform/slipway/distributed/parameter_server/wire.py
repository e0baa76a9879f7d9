"""Protocol between workers and servers over TCP.

A connection begins with a handshake in which both sides prove that they know the secret of the
job, without sending it (HMAC-SHA256 over both sides' nonces, RFC 2104):

    server → worker   nonce (32 bytes)
    worker → server   nonce (32), worker number (4), digest of the shard's layout (32), proof (32)
    server → worker   proof (32), or the connection closes

Then come frames: a fixed header and raw bytes. Parameters and gradients travel as the bytes of
their elements in the order both sides computed from the same model, so no name, shape or length
is taken from the network, nothing is unpickled, and a frame of the wrong length ends the
connection. The handshake keeps strangers out. Like torch's own traffic the frames are neither
encrypted nor signed, so the network between ranks must be trusted.
"""

import hashlib
import hmac
import secrets
import socket
import struct
from dataclasses import dataclass
from enum import IntEnum

NONCE_BYTES = 32
PROOF_BYTES = 32
HANDSHAKE_TIMEOUT_S = 10.0
# The state of an optimizer has a description. This limits its size.
MAX_DESCRIPTION_BYTES = 64 * 2**20

_HEADER = struct.Struct("!4sBBHIQQddQ")
_HELLO = struct.Struct("!32sI32s32s")
_MAGIC = b"SWPS"
_VERSION = 1


class Operation(IntEnum):
    """Request or response type of a frame."""

    PULL = 1
    """Send me the parameters."""
    PUSH = 2
    """Here is a gradient; answer with parameters when I may go on."""
    STATE = 3
    """Send me the state of the optimizer."""
    LEAVE = 4
    """Do not wait for me until I push again. No answer."""
    BYE = 5
    """I am done. No answer."""
    ANSWER = 6


class Flag(IntEnum):
    """Bits of a frame's flags."""

    STOP = 1
    """Somebody was asked to stop."""
    LEADER = 2
    """You are the one who writes checkpoints."""


class WireError(ConnectionError):
    """The other side speaks another protocol, knows no secret, or sent what it must not."""


@dataclass(frozen=True, slots=True)
class Frame:
    """The header of a frame: `clock` counts the sender's steps, `version` the server's updates,
    `weight` and `loss` belong to a gradient, `size` is the number of bytes that follow."""

    operation: Operation
    flags: int = 0
    worker: int = 0
    clock: int = 0
    version: int = 0
    weight: float = 1.0
    loss: float = 0.0
    size: int = 0


def send(connection: socket.socket, frame: Frame, payload: bytes | memoryview = b"") -> None:
    """Send a frame and its bytes."""
    header = _HEADER.pack(
        _MAGIC,
        _VERSION,
        frame.operation,
        frame.flags,
        frame.worker,
        frame.clock,
        frame.version,
        frame.weight,
        frame.loss,
        len(payload),
    )
    connection.sendall(header)
    if payload:
        connection.sendall(payload)


def receive(connection: socket.socket) -> Frame:
    """Receive a header. The caller validates `size` and then reads as many bytes."""
    fields = _HEADER.unpack(receive_exactly(connection, _HEADER.size))
    magic, version, operation, flags, worker, clock, count, weight, loss, size = fields
    if magic != _MAGIC or version != _VERSION or operation not in list(Operation):
        raise WireError("A peer does not speak the protocol of parameter servers.")
    return Frame(Operation(operation), flags, worker, clock, count, weight, loss, size)


def receive_exactly(connection: socket.socket, size: int) -> bytes:
    """Receive `size` bytes."""
    buffer = bytearray(size)
    receive_into(connection, memoryview(buffer))
    return bytes(buffer)


def receive_into(connection: socket.socket, buffer: memoryview) -> None:
    """Fill a buffer from the connection."""
    filled = 0
    while filled < len(buffer):
        count = connection.recv_into(buffer[filled:])
        if not count:
            raise WireError("A peer closed the connection.")
        filled += count


def admit(connection: socket.socket, secret: bytes, layout: bytes, *, worker_count: int) -> int:
    """As a server, verify that a worker belongs to the job, and return its number."""
    token_bytes = secrets.token_bytes(NONCE_BYTES)
    connection.sendall(token_bytes)
    hello = receive_exactly(connection, _HELLO.size)
    theirs, worker, their_layout, proof = _HELLO.unpack(hello)
    claim = _proof(secret, b"worker", token_bytes, theirs, struct.pack("!I", worker) + their_layout)
    if not hmac.compare_digest(proof, claim):
        raise WireError("A peer does not know the secret of this job.")
    if worker >= worker_count:
        raise WireError(f"There is no worker {worker} in this job.")
    if not hmac.compare_digest(their_layout, layout):
        raise WireError(f"Worker {worker} trains another model than this server holds.")
    connection.sendall(_proof(secret, b"server", token_bytes, theirs, b""))
    return int(worker)


def introduce(connection: socket.socket, secret: bytes, layout: bytes, *, worker: int) -> None:
    """As a worker, prove to belong to the job and check that the server does."""
    theirs = receive_exactly(connection, NONCE_BYTES)
    token_bytes = secrets.token_bytes(NONCE_BYTES)
    claim = struct.pack("!I", worker) + layout
    proof = _proof(secret, b"worker", theirs, token_bytes, claim)
    connection.sendall(_HELLO.pack(token_bytes, worker, layout, proof))
    answer = receive_exactly(connection, PROOF_BYTES)
    if not hmac.compare_digest(answer, _proof(secret, b"server", theirs, token_bytes, b"")):
        raise WireError("The parameter server does not know the secret of this job.")


def _proof(secret: bytes, role: bytes, server: bytes, worker: bytes, claim: bytes) -> bytes:
    return hmac.new(secret, role + server + worker + claim, hashlib.sha256).digest()


def tune(connection: socket.socket, timeout_s: float) -> None:
    """Set the connection up for short messages and for noticing a machine that vanished."""
    connection.settimeout(timeout_s)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
