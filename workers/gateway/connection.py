"""Connection of one client: parses requests one at a time, including slow and hostile ones."""

import asyncio
import socket
import time
from typing import Final, cast

from workers.gateway import answers
from workers.gateway.http_parser import MAX_HEAD_BYTES, BadRequest, ChunkedBody
from workers.gateway.request import Prediction
from workers.gateway.routes import CachedRequestHead, RequestHead, Router
from workers.gateway.routing_table import Key

_MAX_AHEAD_BYTES: Final = 64 * 1024
_IDLE_S: Final = 75.0
_BODY_GRACE_S: Final = 10.0
_SLOWEST_BYTES_PER_S: Final = 16 * 1024
_LINGER_S: Final = 2.0
_WRITE_WITHIN_S: Final = 30.0
# After a 503 or 429 the client is not read from for this long, so that clients that ignore it do
# not use up the processor time of others.
_TARPIT_S: Final = 0.25
_ANSWERED_TOO_FAST: Final = (b"HTTP/1.1 503", b"HTTP/1.1 429")


class Clients:
    """State that all client connections of a gateway share."""

    def __init__(
        self, keeper: Router, *, limit: int, held_bytes: int, head_within_s: float
    ) -> None:
        self.router = keeper
        self.head_within_s = head_within_s
        self.limit = limit
        self.held_bytes_limit = held_bytes
        self.held_bytes = 0
        self.is_stopping = False
        self.open: set[Connection] = set()
        self.gone = asyncio.Event()

    def sweep(self) -> None:
        """Close slow clients (slowloris). Called every second."""
        now = time.monotonic()
        for connection in list(self.open):
            connection.sweep(now)

    def stop(self) -> None:
        """Answer pending requests, and close."""
        self.is_stopping = True
        for connection in list(self.open):
            connection.stop()
        if not self.open:
            self.gone.set()


class Connection(asyncio.Protocol):
    """HTTP/1.1 on one socket."""

    __slots__ = (
        "_busy",
        "_chunks",
        "_clients",
        "_deadline",
        "_entry",
        "_held",
        "_is_blocked",
        "_is_lingering",
        "_is_processing",
        "_is_reading",
        "_loop",
        "_need",
        "_parts",
        "_rest",
        "_transport",
        "_usual",
    )

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._rest = b""
        self._entry: RequestHead | None = None
        self._parts: list[bytes] = []
        self._chunks: ChunkedBody | None = None
        self._need = 0
        self._held = 0
        self._busy = False
        self._is_processing = False
        self._usual: CachedRequestHead | None = None
        self._is_reading = True
        self._is_lingering = False
        self._is_blocked = False
        self._deadline = time.monotonic() + self._clients.head_within_s

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accept a client, or answer 503 if there are too many."""
        self._transport = transport = cast(asyncio.Transport, transport)
        # Write a response immediately, not at the end of the loop's iteration.
        transport.set_write_buffer_limits(high=0)
        extra_info = transport.get_extra_info("socket")
        if extra_info is not None and extra_info.family != socket.AF_UNIX:
            extra_info.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._clients.open.add(self)
        if len(self._clients.open) > self._clients.limit or self._clients.is_stopping:
            detail = "The gateway has reached its connection limit."
            self._end(answers.problem(503, "too_many_connections", detail, retry_after_s=1))

    def connection_lost(self, exc: Exception | None) -> None:
        """Release the client. Its pending request is still predicted and captured."""
        self._transport = None
        self._clients.open.discard(self)
        if self._clients.is_stopping and not self._clients.open:
            self._clients.gone.set()
        self._release()

    def eof_received(self) -> bool:
        """Keep the write side open for a pending response."""
        return self._busy

    def data_received(self, data: bytes) -> None:
        """Process received bytes."""
        if self._is_lingering:
            return
        if self._busy or self._is_blocked:
            self._rest += data
            if len(self._rest) > _MAX_AHEAD_BYTES:
                self._pause()
            return
        if self._entry is not None:
            try:
                left = self._collect_body(self._entry, data)
            except BadRequest as error:
                self._end(answers.problem(error.status, error.code, error.detail))
                return
            if left:
                self._process(left)
            return
        if self._rest:
            self._process(self._rest + data)
            return
        # Fast path: nearly always a complete request arrives at once, with a cached head.
        usual, keeper = self._usual, self._clients.router
        if (
            usual is not None
            and len(data) == usual.size
            and usual.generation == keeper.generation
            and data.startswith(usual.start)
        ):
            self._predict(usual.entry, usual.key, data[usual.body_at :])
            return
        if (end := data.find(b"\r\n\r\n")) > 0:
            entry = keeper.known.get(data[:end])
            if entry is not None and not entry.is_chunked and len(data) == end + 4 + entry.length:
                self._serve(entry, data[end + 4 :])
                return
        self._process(data)

    def pause_writing(self) -> None:
        """Pause a client that does not read its responses."""
        self._is_blocked = True
        self._deadline = time.monotonic() + _WRITE_WITHIN_S
        self._pause()

    def resume_writing(self) -> None:
        """Resume a client that reads again."""
        self._is_blocked = False
        if not self._busy:
            self._continue()

    def finish(self, data: bytes) -> None:
        """Write the response to the current request, then process the next."""
        self._busy = False
        entry, self._entry = self._entry, None
        if self._held:
            self._release()
        transport = self._transport
        if transport is None:
            return
        if entry is None or not entry.keep_alive or self._clients.is_stopping:
            self._end(data)
            return
        transport.write(data)
        self._deadline = time.monotonic() + _IDLE_S
        if data.startswith(_ANSWERED_TOO_FAST):
            self._busy = True
            self._pause()
            self._loop.call_later(_TARPIT_S, self._continue)
        elif self._is_blocked or self._is_processing:
            return
        elif self._rest:
            self._continue()
        elif not self._is_reading:
            self._resume()

    def deliver(self, data: bytes, now: float) -> None:
        """Write a successful response. Unusual connection states are left to `finish`."""
        transport, entry = self._transport, self._entry
        if transport is None or entry is None or not (self._is_reading and entry.keep_alive):
            return self.finish(data)
        if self._rest or self._held or self._is_blocked or self._clients.is_stopping:
            return self.finish(data)
        self._busy = False
        self._entry = None
        self._deadline = now + _IDLE_S
        return transport.write(data)

    def sweep(self, now: float) -> None:
        """Close a client that is too slow."""
        if self._transport is None or now < self._deadline:
            return
        if self._busy and not self._is_blocked:
            # Its prediction is in progress, with the endpoint's own deadline.
            return
        if self._is_blocked or self._is_lingering or self._transport.get_write_buffer_size():
            self._transport.abort()
        elif self._rest or self._entry is not None:
            detail = "The request did not arrive in time."
            self._end(answers.problem(408, "request_timeout", detail))
        else:
            self._transport.close()

    def stop(self) -> None:
        """Close at once when idle, else after the response."""
        if not self._busy and self._entry is None and self._transport is not None:
            self._transport.close()

    # From bytes to a request

    def _process(self, data: bytes) -> None:
        """Serve the complete requests in `data` one after the other, and buffer the rest."""
        self._is_processing = True
        try:
            while data and not self._busy and not self._is_blocked and not self._is_lingering:
                left = self._process_request(data)
                if left is None:
                    return
                data = left
            self._rest = data
        except BadRequest as error:
            self._end(answers.problem(error.status, error.code, error.detail))
        finally:
            self._is_processing = False
        if len(self._rest) > _MAX_AHEAD_BYTES:
            self._pause()

    def _process_request(self, data: bytes) -> bytes | None:
        """Serve the first request in `data` and return the rest, or None if it is incomplete."""
        end = data.find(b"\r\n\r\n")
        if end < 0 or end > MAX_HEAD_BYTES:
            if len(data) > MAX_HEAD_BYTES:
                detail = f"The head is longer than {MAX_HEAD_BYTES} bytes."
                raise BadRequest(431, "head_too_large", detail)
            if not 65 <= data[0] <= 90:
                raise BadRequest(400, "malformed_request", "This is not an HTTP/1.1 request.")
            if not self._rest:
                self._deadline = time.monotonic() + self._clients.head_within_s
            self._rest = data
            return None
        entry = self._clients.router.open(data[:end])
        self._rest = b""
        begin = end + 4
        if not entry.is_chunked:
            whole = begin + entry.length
            if len(data) == whole:
                self._serve(entry, data[begin:])
                return b""
            if len(data) > whole:
                self._serve(entry, data[begin:whole])
                return data[whole:]
        return self._start_body(entry, data[begin:])

    def _start_body(self, entry: RequestHead, data: bytes) -> bytes | None:
        refused = entry.refused
        if refused is None and entry.key is not None:
            refused = entry.key.endpoint.refusal()
        if refused is None and not self._reserve_memory(entry.length):
            detail = "The gateway has reached its limit of large request bodies."
            refused = answers.problem(503, "overloaded", detail, retry_after_s=1)
        if refused is not None and (
            entry.is_chunked or entry.expects or entry.length > _MAX_AHEAD_BYTES
        ):
            # Not worth reading. A small body is read, so that the connection can stay open.
            self._end(refused)
            return b""
        if entry.expects and self._transport is not None and not data:
            self._transport.write(answers.CONTINUE)
        self._entry = entry
        self._need = entry.length
        size = entry.length
        if entry.is_chunked:
            size = entry.key.endpoint.route.limits.max_body_bytes if entry.key else 0
            self._chunks = ChunkedBody(size)
        self._deadline = time.monotonic() + _BODY_GRACE_S + size / _SLOWEST_BYTES_PER_S
        return self._collect_body(entry, data) if data else None

    def _collect_body(self, entry: RequestHead, data: bytes) -> bytes | None:
        """Collect a body, serve it once complete, and return the rest. Raise BadRequest."""
        if self._chunks is not None:
            feed = self._chunks.feed(data)
            if feed is None:
                return None
            self._chunks = None
            body, rest = feed
        else:
            self._parts.append(data)
            self._need -= len(data)
            if self._need > 0:
                return None
            whole, self._parts = b"".join(self._parts), []
            end = len(whole) + self._need
            body, rest = whole[:end], whole[end:]
        self._serve(entry, body)
        return rest

    def _serve(self, entry: RequestHead, body: bytes) -> None:
        """Respond at once, or start to process the request."""
        self._entry = entry
        if entry.refused is not None:
            self.finish(entry.refused)
            return
        if entry.tell is not None:
            self.finish(entry.tell())
            return
        if entry.key is None:
            self.finish(answers.NOT_FOUND)
            return
        self._usual = entry.usual
        self._predict(entry, entry.key, body)

    def _predict(self, entry: RequestHead, key: Key, body: bytes) -> None:
        self._entry = entry
        endpoint = key.endpoint
        now = time.monotonic()
        refused = self._clients.router.refuse_now(key, now)
        if refused is None and (endpoint.in_flight >= endpoint.admits or endpoint.is_paused):
            refused = endpoint.refusal()
        if refused is not None:
            self.finish(refused)
            return
        self._busy = True
        endpoint.admit(Prediction(self, key.id, entry.request_format, body, now))

    # The socket

    def _continue(self) -> None:
        self._busy = False
        if self._transport is None:
            return
        rest = self._rest
        self._resume()
        if rest:
            self._process(rest)

    def _end(self, data: bytes) -> None:
        """Answer and close. The rest of a body is read and discarded for a short time.

        Closing at once would reset the connection, and the client could lose the response.
        """
        transport = self._transport
        self._entry, self._rest, self._parts, self._chunks = None, b"", [], None
        self._busy = False
        self._release()
        if transport is None or self._is_lingering:
            return
        self._is_lingering = True
        transport.write(data.replace(b"\r\n", b"\r\nconnection: close\r\n", 1))
        if transport.can_write_eof():
            transport.write_eof()
        self._deadline = time.monotonic() + _LINGER_S
        self._resume()

    def _pause(self) -> None:
        if self._is_reading and self._transport is not None:
            self._is_reading = False
            self._transport.pause_reading()

    def _resume(self) -> None:
        if not self._is_reading and self._transport is not None:
            self._is_reading = True
            self._transport.resume_reading()

    def _reserve_memory(self, size: int) -> bool:
        if self._clients.held_bytes + size > self._clients.held_bytes_limit:
            return False
        self._clients.held_bytes += size
        self._held = size
        return True

    def _release(self) -> None:
        self._clients.held_bytes -= self._held
        self._held = 0
