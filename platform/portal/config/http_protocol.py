"""HTTP/1.1 for the portal with time limits: slow heads, bodies and readers are disconnected.

uvicorn limits nothing but idle keep-alive connections, and one byte is enough to avoid that
limit. A client may hold a connection while its response is computed, but not by sending a request
slowly or by not reading.
"""

import asyncio
import json
import math
import resource
from collections import Counter
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_MAX_HEAD_BYTES: Final = 256 * 1024
# Minimum average rate of a body over a window, about 32 kbit/s.
_SLOWEST_BYTES_PER_S: Final = 4096
# A response may stay unread in the socket for this many windows.
_UNREAD_WINDOWS: Final = 2
# After an error was written, for clients that do not read it.
_LINGER_S: Final = 2.0
_MAX_CONNECTIONS: Final = 10_000
# File descriptors for everything but client connections: databases, files, logs.
_RESERVED_DESCRIPTORS: Final = 256
_REASONS: Final = {
    408: "Request Timeout",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}


class ConnectionLimits:
    """The limits of one server, and its connections.

    `per_address` is not enforced where it is None, because all clients come through a proxy.
    """

    def __init__(
        self, *, head_within_s: float, body_window_s: float, total: int, per_address: int | None
    ) -> None:
        self.head_within_s = head_within_s
        self.body_window_s = body_window_s
        self.total = total
        self.per_address = per_address
        self._count = 0
        self._by_address: Counter[str] = Counter()

    def acquire(self, address: str) -> str:
        """Count a connection. Return the code of the limit it exceeds, else an empty string."""
        self._count += 1
        self._by_address[address] += 1
        if self.per_address is not None and self._by_address[address] > self.per_address:
            return "too_many_connections_from_here"
        return "too_many_connections" if self._count > self.total else ""

    def release(self, address: str) -> None:
        """Remove a connection from the counts."""
        self._count -= 1
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]


def connection_limit() -> int:
    """Raise the soft limit of file descriptors and return how many connections fit into it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = _MAX_CONNECTIONS + _RESERVED_DESCRIPTORS
    if hard == resource.RLIM_INFINITY:
        hard = max(soft, needed)
    if soft < min(hard, needed):
        soft = min(hard, needed)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return max(64, min(_MAX_CONNECTIONS, soft - _RESERVED_DESCRIPTORS))


def address_key(host: str) -> str:
    """Return the key that connections are counted by: an IPv4 address or an IPv6 /64 network."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ip_network((address, 64), strict=False))
    return str(address)


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's protocol, which closes connections that exceed `limits`."""

    limits: ConnectionLimits
    _address = ""
    _timer: asyncio.TimerHandle | None = None
    _unread_timer: asyncio.TimerHandle | None = None
    _is_in_body = False
    _is_refused = False
    _head_bytes = 0
    _body_bytes = 0

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a client, or refuse it when there are too many."""
        super().connection_made(transport)
        self._address = address_key(self.client[0]) if self.client else ""
        code = self.limits.acquire(self._address)
        if code:
            self._refuse(503, code, "Too many connections; close some, or try again.")
        else:
            self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Release the connection's count and stop its timers."""
        self.limits.release(self._address)
        self._stop_timer()
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse bytes. Start the timeout of a request that is incomplete after that."""
        if self._is_refused:
            return
        if self._is_in_body:
            self._body_bytes += len(data)
        else:
            self._head_bytes += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if not self._is_in_body and self._head_bytes > _MAX_HEAD_BYTES:
            self._refuse(431, "head_too_large", "The head of the request is too large.")
        elif self._timer is None and self._is_in_body:
            self._await_body()
        elif self._timer is None and self._head_bytes:
            self._await_head()

    def pause_writing(self) -> None:
        """Monitor whether the client reads its buffered response."""
        super().pause_writing()
        self._watch_reader(self.transport.get_write_buffer_size(), _UNREAD_WINDOWS)

    def resume_writing(self) -> None:
        """Stop monitoring, since the client has read."""
        super().resume_writing()
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None

    # The parser's callbacks

    def on_headers_complete(self) -> None:
        """Begin a request. An error here is answered with 400.

        `GET http://other.example/` is meant for proxies. Its host would take precedence over the
        Host header (RFC 9112, 3.2.2), and nothing behind this would see it.
        """
        if not self.url.startswith(b"/"):
            raise ValueError("the request target is not a path")
        self._stop_timer()
        self._is_in_body = True
        self._head_bytes = self._body_bytes = 0
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Stop the timer: the rest of the time is the server's."""
        self._stop_timer()
        self._is_in_body = False
        self._head_bytes = 0
        super().on_message_complete()

    # Time limits

    def _await_head(self) -> None:
        self._timer = self.loop.call_later(self.limits.head_within_s, self._head_is_late)

    def _await_body(self) -> None:
        self._timer = self.loop.call_later(self.limits.body_window_s, self._check_body)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _head_is_late(self) -> None:
        self._timer = None
        cycle: Any = self.cycle  # None before the first request, unlike uvicorn's annotation
        if cycle is not None and not cycle.response_complete:
            self._await_head()  # a response is in progress, and its time is the server's
        elif self._head_bytes:
            within = math.ceil(self.limits.head_within_s)
            self._refuse(
                408, "request_timeout", f"The head did not arrive within {within} seconds."
            )
        else:
            self.transport.close()

    def _check_body(self) -> None:
        """Refuse a body that is too slow: too few bytes within a window."""
        self._timer = None
        # Clients may be waiting for the server: for its 100, and while it is slower than they are.
        is_waited_for = not self.flow.read_paused and not self.cycle.waiting_for_100_continue
        needed = _SLOWEST_BYTES_PER_S * self.limits.body_window_s
        if is_waited_for and self._body_bytes < needed:
            self._refuse(408, "request_timeout", "The body arrived too slowly.")
            return
        self._body_bytes = 0
        self._await_body()

    def _watch_reader(self, size: int, windows: int) -> None:
        self._unread_timer = self.loop.call_later(
            self.limits.body_window_s, self._check_reader, size, windows
        )

    def _check_reader(self, before: int, windows: int) -> None:
        """Abort the connection of a client that has read nothing for some windows."""
        self._unread_timer = None
        size = self.transport.get_write_buffer_size()
        windows = windows - 1 if size >= before else _UNREAD_WINDOWS
        if windows:
            self._watch_reader(size, windows)
        else:
            self.transport.abort()

    def _refuse(self, status: int, code: str, detail: str) -> None:
        """Send a problem response unless a response has begun, and close."""
        self._is_refused = True
        self._stop_timer()
        if self.transport.is_closing():
            return
        cycle: Any = self.cycle
        if cycle is None or cycle.response_complete or not cycle.response_started:
            self.transport.write(_problem(status, code, detail))
        if cycle is not None:
            cycle.disconnected = True
            cycle.message_event.set()
        self.transport.close()
        self.loop.call_later(_LINGER_S, self.transport.abort)


def _problem(status: int, code: str, detail: str) -> bytes:
    problem = {
        "type": f"urn:slipway:problem:{code}",
        "title": _REASONS[status],
        "status": status,
        "detail": detail,
        "code": code,
        "next_step": "Send the request again.",
    }
    body = json.dumps(problem).encode()
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\n"
        "content-type: application/problem+json\r\n"
        f"content-length: {len(body)}\r\n"
        + ("retry-after: 1\r\n" if status == 503 else "")
        + "connection: close\r\n\r\n"
    )
    return head.encode() + body


def protocol_with_limits(limits: ConnectionLimits) -> type[BoundedProtocol]:
    """Return the protocol of a server with these limits."""

    class Protocol(BoundedProtocol):
        pass

    Protocol.limits = limits
    return Protocol
