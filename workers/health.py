"""Health of a process that has no other port: /healthz, /readyz, /metrics on loopback.

Any process of the machine may read whether this one is alive and ready. Details and metrics need
the bearer token: user code may run on the same machine.

Every route is in ROUTES with its policy, so that a test can enumerate them.
"""

import hmac
import io
import json
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from slipway.schemas.hosts import LOOPBACK_NAMES, AllowedHosts, HostRefused

ANY_LOCAL_PROCESS: Final = "any process of this machine"
BEARER: Final = "the bearer token"
_HOST: Final = "127.0.0.1"
_PATIENCE_S: Final = 5.0
_HEAD_TIMEOUT_S: Final = 10.0
_MAX_CONNECTIONS: Final = 64


@dataclass(frozen=True)
class Check:
    """Result of one check. Only `ok` decides. `detail` is for people."""

    ok: bool
    detail: str = ""


Checks = Mapping[str, Callable[[], Check]]


@dataclass(frozen=True)
class HealthResponse:
    """Status, media type and body of an answer."""

    status: int
    media_type: str
    body: bytes


@dataclass(frozen=True)
class Route:
    """A path, its access policy and its handler. `is_known` is true if the token was valid."""

    path: str
    policy: str
    answer: Callable[[Checks, bool], HealthResponse]


def _alive(_checks: Checks, _is_known: bool) -> HealthResponse:
    return HealthResponse(200, "text/plain; charset=utf-8", b"ok\n")


def _ready(checks: Checks, is_known: bool) -> HealthResponse:
    results = {name: check() for name, check in checks.items()}
    ready = all(check.ok for check in results.values())
    body: dict[str, object] = {"ready": ready}
    if is_known:
        body["checks"] = {
            name: {"ok": check.ok, "detail": check.detail} for name, check in results.items()
        }
    return HealthResponse(200 if ready else 503, "application/json", json.dumps(body).encode())


def _metrics(_checks: Checks, _is_known: bool) -> HealthResponse:
    return HealthResponse(200, CONTENT_TYPE_LATEST, generate_latest())


ROUTES: Final = (
    Route("/healthz", ANY_LOCAL_PROCESS, _alive),
    Route("/readyz", ANY_LOCAL_PROCESS, _ready),
    Route("/metrics", BEARER, _metrics),
)


class HealthServer:
    """Answers ROUTES on a loopback port, in threads of its own, from `start` to `stop`."""

    def __init__(self, port: int, checks: Checks, *, token: str) -> None:
        """Open the port (0 lets the system choose).

        Raises OSError when the port is taken, and ValueError without a token.
        """
        if not token:
            raise ValueError("a health server needs a token for its details")
        self._server = _BoundedServer((_HOST, port), _handler_for(checks, token))

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self._server.server_address[1])

    def start(self) -> None:
        """Start the server. Returns immediately."""
        threading.Thread(target=self._server.serve_forever, name="health", daemon=True).start()

    def stop(self) -> None:
        """Stop the server."""
        self._server.shutdown()
        self._server.server_close()


class _BoundedServer(ThreadingHTTPServer):
    """A server with a thread for each connection, and a maximum of both."""

    daemon_threads = True
    request_queue_size = _MAX_CONNECTIONS

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        self._free = threading.BoundedSemaphore(_MAX_CONNECTIONS)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Handle a connection in a thread, or close it when there are too many."""
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Handle a connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()


class _TimedReader(io.RawIOBase):
    """Reads from a connection until a deadline. A socket timeout would apply to one read only."""

    def __init__(self, connection: socket.socket, within_s: float) -> None:
        self._connection = connection
        self._deadline = time.monotonic() + within_s

    def readable(self) -> bool:
        """Return True, because this stream is for reading."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read the available bytes. Raises TimeoutError."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the request head took too long")
        self._connection.settimeout(min(left, _PATIENCE_S))
        return self._connection.recv_into(buffer)


def _refusal(hosts: list[str], target: str, port: int) -> HealthResponse | None:
    """Return the answer to a request that does not name this server and a path."""
    allowed = AllowedHosts.of(f"http://localhost:{port}", port=port, listens_on=LOOPBACK_NAMES)
    try:
        allowed.accept(hosts)
    except HostRefused as refusal:
        return HealthResponse(refusal.status, "text/plain", f"{refusal.detail}\n".encode())
    # An absolute target contains a host, which would take precedence.
    if not target.startswith("/"):
        return HealthResponse(400, "text/plain", b"The request target is not a path.\n")
    return None


def _handler_for(checks: Checks, token: str) -> type[BaseHTTPRequestHandler]:
    expected = f"Bearer {token}".encode()

    class Handler(BaseHTTPRequestHandler):
        server_version = "slipway"
        sys_version = ""

        def setup(self) -> None:
            super().setup()
            # Each connection has one request, and bodies are not read.
            self.rfile = io.BufferedReader(_TimedReader(self.connection, _HEAD_TIMEOUT_S))

        def do_GET(self) -> None:
            self._send(self._answer())

        def _answer(self) -> HealthResponse:
            # DNS rebinding: a web page whose name points here must not read this through a browser.
            port = self.server.server_port  # type: ignore[attr-defined]
            refusal = _refusal(self.headers.get_all("Host", []), self.path, port)
            if refusal is not None:
                return refusal
            path = self.path.partition("?")[0]
            for route in ROUTES:
                if route.path != path:
                    continue
                is_known = self._is_known()
                if route.policy == BEARER and not is_known:
                    return HealthResponse(401, "text/plain", b"send Authorization: Bearer TOKEN\n")
                return route.answer(checks, is_known)
            return HealthResponse(404, "text/plain", b"there is /healthz, /readyz and /metrics\n")

        def _is_known(self) -> bool:
            """Return whether the request has exactly one credential and that is the token."""
            credentials = self.headers.get_all("Authorization", [])
            return len(credentials) == 1 and hmac.compare_digest(
                credentials[0].encode("latin1", "replace"), expected
            )

        def _send(self, answer: HealthResponse) -> None:
            self.connection.settimeout(_PATIENCE_S)
            self.send_response(answer.status)
            if answer.status == 401:
                self.send_header("WWW-Authenticate", "Bearer")
            self.send_header("Content-Type", answer.media_type)
            self.send_header("Content-Length", str(len(answer.body)))
            self.send_header("X-Content-Type-Options", "nosniff")
            self.end_headers()
            self.wfile.write(answer.body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Keep probes out of the log."""

    return Handler
