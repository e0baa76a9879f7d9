"""Server of a replica: gateways connect, authenticate with the shared secret, and send requests."""

import asyncio
import logging
import os
import secrets
import socket
from contextlib import suppress
from pathlib import Path
from typing import Final, cast

from slipway.schemas.serving import ReplicaSpec
from workers.launcher.rank_env import LISTENER_VARIABLE
from workers.model_server.codecs import Model
from workers.model_server.engine import Engine
from workers.serving.wire import (
    LARGE_FRAME_BYTES,
    MAC_BYTES,
    MAX_COUNT,
    NONCE_BYTES,
    BrokenFrame,
    Contract,
    FrameReader,
    Kind,
    RequestFrame,
    ResponseFrame,
    Welcome,
    frame,
    new,
    pack_answers,
    pack_plain_answers,
    proof,
    proved,
    single_request,
    unpack_plain_requests,
    unpack_requests,
)

log = logging.getLogger(__name__)
GATEWAY: Final = b"gateway"
REPLICA: Final = b"replica"
_PROOF_WITHIN_S: Final = 5.0
_PLAIN: Final = int(Kind.PLAIN_REQUESTS)
_SCORING: Final = int(Contract.SCORING)


class ReplicaServer:
    """Listens for gateways, and drains on request."""

    def __init__(self, spec: ReplicaSpec, model: Model, engine: Engine) -> None:
        self.secret = spec.secret
        self.engine = engine
        self.connections: set[Connection] = set()
        self.empty = asyncio.Event()
        self._spec = spec
        self._server: asyncio.Server | None = None
        self.welcome = (
            Welcome(
                replica_id=spec.replica_id,
                revision_id=spec.revision_id,
                model=spec.model,
                model_version=spec.model_version,
                platform=model.platform,
                signature=model.signature,
                forward_ms=engine.forward_ms,
                max_rows=spec.batching.max_rows,
                takes_plain=True,
            )
            .model_dump_json()
            .encode()
        )

    async def listen(self) -> str:
        """Start listening and return the address for others. Raises OSError."""
        loop = asyncio.get_running_loop()
        listen = self._spec.listen
        if listen.startswith("unix:"):
            unix_socket = _unix_socket(listen.removeprefix("unix:"))
            self._server = await loop.create_unix_server(lambda: Connection(self), sock=unix_socket)
            return listen
        host, _, port = listen.rpartition(":")
        number = os.environ.pop(LISTENER_VARIABLE, "")
        if number:
            # Without network access, or in a pool: a listening socket that the launcher opened.
            listener = socket.socket(fileno=int(number))
            if listener.family == socket.AF_UNIX:
                self._server = await loop.create_unix_server(
                    lambda: Connection(self), sock=listener
                )
                # The portal knows the address at which the relay leads here.
                return self._spec.advertise_host or host
            self._server = await loop.create_server(lambda: Connection(self), sock=listener)
        else:
            self._server = await loop.create_server(lambda: Connection(self), host, int(port))
        bound = self._server.sockets[0].getsockname()[1]
        return f"{self._spec.advertise_host or host}:{bound}"

    async def drain(self, *, within_s: float) -> None:
        """Ask gateways for nothing new, answer what is here, close."""
        if self._server is not None:
            self._server.close()
        for connection in self.connections:
            connection.send(frame(Kind.DRAIN))
        # Gateways disconnect when they have their responses. Wait for the others.
        if self.connections:
            with suppress(TimeoutError):
                await asyncio.wait_for(self.empty.wait(), within_s)
        for connection in list(self.connections):
            connection.close()


def _unix_socket(path: str) -> socket.socket:
    Path(path).unlink(missing_ok=True)
    unix_socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    unix_socket.bind(path)
    # Of the machine's users, only this one may connect, and needs the secret in addition.
    Path(path).chmod(0o600)
    return unix_socket


class Connection(asyncio.Protocol):
    """One gateway."""

    def __init__(self, server: ReplicaServer) -> None:
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._frames = FrameReader()
        self._nonce = secrets.token_bytes(NONCE_BYTES)
        self._is_known = False
        self._reply = self._send_answers

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the challenge to the new client."""
        self._transport = transport = cast(asyncio.Transport, transport)
        transport.set_write_buffer_limits(high=1 << 30)
        extra_info = transport.get_extra_info("socket")
        if extra_info is not None and extra_info.family != socket.AF_UNIX:
            extra_info.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._server.connections.add(self)
        self._server.empty.clear()
        self.send(frame(Kind.CHALLENGE, self._nonce))
        asyncio.get_running_loop().call_later(_PROOF_WITHIN_S, self._expect_proof)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the gateway."""
        self._server.connections.discard(self)
        if not self._server.connections:
            self._server.empty.set()
        self._transport = None

    def data_received(self, data: bytes) -> None:
        """Process frames. Requests that arrived together are predicted together."""
        if self._is_known and not self._frames.is_mid_frame:
            item = single_request(data)
            if item is not None:
                self._submit([item])
                return
        request_frame: list[RequestFrame] = []
        try:
            frames = self._frames.feed(data)
            for received in frames:
                if self._is_known and received.kind == _PLAIN:
                    first, bodies = unpack_plain_requests(received)
                    if len(frames) > 1 or not self._answer_plain(first, bodies):
                        request_frame += [
                            new(RequestFrame, (first + at, _SCORING, 0, body))
                            for at, body in enumerate(bodies)
                        ]
                elif self._is_known and received.kind == Kind.REQUESTS:
                    request_frame += unpack_requests(received)
                elif not self._is_known and received.kind == Kind.HELLO:
                    self._hello(received.payload)
                else:
                    raise BrokenFrame(f"kind {received.kind} is not expected here")
        except BrokenFrame as error:
            log.warning("a connection was closed: %s", error)
            self.close()
            return
        if request_frame:
            self._submit(request_frame)

    def send(self, data: bytes) -> None:
        """Write, unless the gateway has disconnected."""
        if self._transport is not None:
            self._transport.write(data)

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.close()

    def _answer_plain(self, first: int, bodies: list[bytes]) -> bool:
        """Answer scoring requests immediately. Return False if they need the general path."""
        server = self._server
        # Other connections may have sent requests in this turn, too.
        plainly = server.engine.answer_plainly(bodies) if len(server.connections) == 1 else None
        if plainly is None:
            return False
        answers, queue_us = plainly
        self.send(pack_plain_answers(first, queue_us, answers))
        return True

    def _submit(self, request_frame: list[RequestFrame]) -> None:
        server = self._server
        server.engine.submit(request_frame, self._reply, is_all=len(server.connections) == 1)

    def _hello(self, payload: bytes) -> None:
        theirs, mac = payload[:NONCE_BYTES], payload[NONCE_BYTES:]
        if len(mac) != MAC_BYTES or not proved(
            GATEWAY, self._server.secret, self._nonce, theirs, mac
        ):
            raise BrokenFrame("the client does not know the secret")
        self._is_known = True
        self._frames.limit_bytes = LARGE_FRAME_BYTES
        data = proof(REPLICA, self._server.secret, theirs, self._nonce)
        self.send(frame(Kind.WELCOME, data + self._server.welcome))

    def _expect_proof(self) -> None:
        if not self._is_known:
            self.close()

    def _send_answers(self, answers: list[ResponseFrame]) -> None:
        if len(answers) <= MAX_COUNT:
            self.send(pack_answers(answers))
            return
        for at in range(0, len(answers), MAX_COUNT):
            self.send(pack_answers(answers[at : at + MAX_COUNT]))
