"""Authenticated connection to one replica: reconnects, and sends many requests in a frame."""

import asyncio
import logging
import secrets
import socket
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal, Protocol, cast

import pydantic

from slipway.schemas.relay import door_name_of
from slipway.schemas.serving import ReplicaLink, ReplicaRoute
from slipway.schemas.truncation import shorten
from workers.gateway.request import Prediction
from workers.serving.wire import (
    LARGE_FRAME_BYTES,
    MAC_BYTES,
    MAX_COUNT,
    NONCE_BYTES,
    NUMBERS,
    SMALL_FRAME_BYTES,
    BrokenFrame,
    Frame,
    FrameReader,
    Kind,
    ResponseFrame,
    Welcome,
    frame,
    pack_plain_requests,
    pack_requests,
    proof,
    proved,
    single_answer,
    unpack_answers,
    unpack_plain_answers,
)

log = logging.getLogger(__name__)
GATEWAY: Final = b"gateway"
REPLICA: Final = b"replica"
_WELCOME_BYTES: Final = 32 << 20
_PATIENCE_S: Final = 5.0
_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 1.0
_LINGER_S: Final = 60.0
_PLAIN: Final = int(Kind.PLAIN_ANSWERS)


class LinkOwner(Protocol):
    """The revision a replica belongs to."""

    def link_changed(self) -> None:
        """Handle a replica that became ready or unavailable."""

    def handle_responses(self, pairs: list[tuple[Prediction, ResponseFrame]]) -> None:
        """Handle responses."""

    def handle_plain_responses(
        self, pendings: list[Prediction], bodies: list[bytes], queue_us: int
    ) -> None:
        """Handle successful JSON responses of requests with the same queueing time."""

    def lost(self, pendings: list[Prediction]) -> None:
        """Handle predictions that a lost replica did not answer."""


class ReplicaConnection(asyncio.Protocol):
    """Connection to one replica. `start` connects and reconnects until `close`.

    A replica in a pool is reached through its door in `relay_folder`. While it is not,
    `relay_problem` says why, in a sentence for clients.
    """

    def __init__(
        self, route: ReplicaRoute, owner: LinkOwner, relay_folder: Path | None = None
    ) -> None:
        self.route = route
        self.relay_problem = ""
        self._door = door_name_of(route.address.rpartition(":")[0])
        self._relay_folder = relay_folder
        self.state: Literal["connecting", "ready", "draining"] = "connecting"
        self.reason = "not connected yet"
        self.waiting: dict[int, Prediction] = {}
        self.welcome: Welcome | None = None
        self._owner = owner
        self._number = 0
        self._frames = FrameReader()
        self._nonce = b""
        self._challenge = b""
        self._transport: asyncio.Transport | None = None
        self._is_closing = False
        self._gone = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start connecting."""
        self._task = asyncio.get_running_loop().create_task(self._connect_loop())

    def close(self) -> None:
        """Send nothing new, and close once all responses have arrived, or after a minute."""
        if not self._is_closing:
            asyncio.get_running_loop().call_later(_LINGER_S, self.abort)
        self._is_closing = True
        if self.state == "ready":
            self.state = "draining"
        self._close_if_done()

    def abort(self) -> None:
        """Close immediately. Pending predictions are lost."""
        self._is_closing = True
        if self._transport is not None:
            self._transport.abort()
        elif self._task is not None:
            self._task.cancel()

    def send(self, pendings: list[Prediction]) -> None:
        """Send these predictions to the replica. The connection has to be ready."""
        if self._transport is None:
            self._owner.lost(pendings)
            return
        welcome = self.welcome
        if welcome is not None and welcome.takes_plain and 1 < len(pendings) <= MAX_COUNT:
            bodies = [
                prediction_request.body
                for prediction_request in pendings
                if prediction_request.request_format.is_plain
            ]
            if len(bodies) == len(pendings):
                self._transport.write(pack_plain_requests(self._numbered(pendings), bodies))
                return
        number = self._number
        waiting = self.waiting
        requests = []
        for pending in pendings:
            number = (number + 1) & 0xFFFFFFFF
            waiting[number] = pending
            ask = pending.request_format
            requests.append((number, ask.contract, ask.head_len, pending.body))
        self._number = number
        if len(requests) <= MAX_COUNT:
            self._transport.write(pack_requests(requests))
            return
        for at in range(0, len(requests), MAX_COUNT):
            self._transport.write(pack_requests(requests[at : at + MAX_COUNT]))

    def _numbered(self, pendings: list[Prediction]) -> int:
        """Register predictions as waiting and return the number of the first."""
        first = self._number + 1
        if first + len(pendings) > NUMBERS:
            first = 1
        self._number = first + len(pendings) - 1
        self.waiting.update(zip(range(first, first + len(pendings)), pendings, strict=True))
        return first

    def expire(self, before: float) -> list[Prediction]:
        """Remove and return pending predictions that were sent before a time."""
        late = []
        for number, pending in self.waiting.items():
            if pending.since >= before:
                break
            late.append(number)
        return [self.waiting.pop(number) for number in late]

    def to_report(self) -> ReplicaLink:
        """Return the state of this connection for the report."""
        return ReplicaLink(
            replica_id=self.route.id,
            state=self.state,
            in_flight=len(self.waiting),
            reason="" if self.state == "ready" else shorten(self.relay_problem or self.reason, 500),
        )

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the challenge."""
        self._transport = transport = cast(asyncio.Transport, transport)
        transport.set_write_buffer_limits(high=1 << 30)
        extra_info = transport.get_extra_info("socket")
        if extra_info is not None and extra_info.family != socket.AF_UNIX:
            extra_info.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._frames = FrameReader(SMALL_FRAME_BYTES)
        self._nonce = secrets.token_bytes(NONCE_BYTES)

    def connection_lost(self, exc: Exception | None) -> None:
        """Return unanswered predictions to the owner."""
        self._transport = None
        was, self.state = self.state, "connecting"
        self.reason = f"the connection was lost: {exc or 'closed by the replica'}"
        if self._door is not None and not self.relay_problem:
            self.relay_problem = "The connection through the relay was lost; it is renewed."
        lost, self.waiting = list(self.waiting.values()), {}
        self._gone.set()
        if was != "connecting":
            self._owner.link_changed()
        if lost:
            self._owner.lost(lost)

    def data_received(self, data: bytes) -> None:
        """Process received frames."""
        if self.welcome is not None and not self._frames.is_mid_frame:
            answer = single_answer(data)
            if answer is not None:
                self._deliver([answer])
                return
        try:
            for received in self._frames.feed(data):
                if received.kind == _PLAIN and self.welcome is not None:
                    self._deliver_plain(*unpack_plain_answers(received))
                elif received.kind == Kind.ANSWERS and self.welcome is not None:
                    self._deliver(unpack_answers(received))
                else:
                    self._handshake(received)
        except BrokenFrame as error:
            log.warning("replica %s: %s", self.route.id, error)
            self.reason = f"it does not speak the protocol: {error}"
            if self._transport is not None:
                self._transport.abort()

    def _deliver(self, answers: list[ResponseFrame]) -> None:
        take = self.waiting.pop
        pairs = []
        for answer in answers:
            pending = take(answer.number, None)
            if pending is not None:
                pairs.append((pending, answer))
        if pairs:
            self._owner.handle_responses(pairs)
        if self.state == "draining":
            self._close_if_done()

    def _deliver_plain(self, first: int, queue_us: int, bodies: list[bytes]) -> None:
        take = self.waiting.pop
        prediction_requests = [take(number, None) for number in range(first, first + len(bodies))]
        pendings = [
            prediction_request
            for prediction_request in prediction_requests
            if prediction_request is not None
        ]
        if len(pendings) < len(prediction_requests):
            # Some have expired.
            bodies = [
                body
                for body, prediction_request in zip(bodies, prediction_requests, strict=True)
                if prediction_request is not None
            ]
        if pendings:
            self._owner.handle_plain_responses(pendings, bodies, queue_us)
        if self.state == "draining":
            self._close_if_done()

    def _handshake(self, received: Frame) -> None:
        if self._transport is None:
            return
        secret = self.route.secret
        if received.kind == Kind.CHALLENGE and self.state == "connecting":
            self._challenge = received.payload[:NONCE_BYTES]
            self._frames.limit_bytes = _WELCOME_BYTES
            data = proof(GATEWAY, secret, self._challenge, self._nonce)
            self._transport.write(frame(Kind.HELLO, self._nonce + data))
        elif received.kind == Kind.WELCOME and self._challenge:
            mac, chunk = received.payload[:MAC_BYTES], received.payload[MAC_BYTES:]
            if not proved(REPLICA, secret, self._nonce, self._challenge, mac):
                raise BrokenFrame("it does not know the secret")
            try:
                self.welcome = Welcome.model_validate_json(chunk)
            except pydantic.ValidationError as error:
                raise BrokenFrame("its welcome is malformed") from error
            self._frames.limit_bytes = LARGE_FRAME_BYTES
            self._challenge = b""
            self.state, self.reason, self.relay_problem = "ready", "", ""
            self._owner.link_changed()
            if self._is_closing:
                self.close()
        elif received.kind == Kind.DRAIN:
            self.state, self.reason = "draining", "the replica is about to stop"
            self._owner.link_changed()
            self._close_if_done()
        else:
            raise BrokenFrame(f"kind {received.kind} is not expected here")

    def _close_if_done(self) -> None:
        if self.waiting:
            return
        if self._transport is not None:
            self._transport.close()
        elif self._is_closing and self._task is not None:
            self._task.cancel()

    async def _connect_loop(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while self._should_connect():
            self._gone.clear()
            self.welcome = None
            try:
                await asyncio.wait_for(self._connect(), _PATIENCE_S)
            except (OSError, TimeoutError) as error:
                self.reason = f"cannot connect: {str(error) or 'no response'}"
            else:
                handle = asyncio.get_running_loop().call_later(_PATIENCE_S, self._expect_welcome)
                await self._gone.wait()
                handle.cancel()
                pause_s = _FIRST_PAUSE_S if self._is_welcomed() else pause_s
            if self._should_connect():
                await asyncio.sleep(pause_s)
                pause_s = min(_LONGEST_PAUSE_S, pause_s * 2)

    def _is_welcomed(self) -> bool:
        return self.welcome is not None

    def _should_connect(self) -> bool:
        return not self._is_closing

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        address = self.route.address
        if self._door is not None:
            await self._connect_through_relay(self._door)
            return
        if address.startswith("unix:"):
            await loop.create_unix_connection(lambda: self, address.removeprefix("unix:"))
            return
        host, _, port = address.rpartition(":")
        with suppress(ValueError):
            await loop.create_connection(lambda: self, host.strip("[]"), int(port))
            return
        raise OSError(f"{address} is not an address")

    async def _connect_through_relay(self, door: str) -> None:
        if self._relay_folder is None:
            self.relay_problem = "This gateway is not on the machine of the relay."
            raise OSError("the replica is in a pool, and this gateway has no --relay-folder")
        try:
            path = str(self._relay_folder / door)
            await asyncio.get_running_loop().create_unix_connection(lambda: self, path)
        except FileNotFoundError:
            self.relay_problem = "The relay has no connection to its node in the pool."
            raise OSError("the relay has no connection to its node") from None
        except ConnectionRefusedError:
            self.relay_problem = "The relay, which leads to its node in the pool, is not running."
            raise OSError("the relay is not running") from None

    def _expect_welcome(self) -> None:
        if self.state == "connecting" and self._transport is not None:
            self.reason = "it accepted the connection but sent nothing"
            self._transport.abort()
