"""Health of a process that has no other port: /healthz, /readyz, /metrics on loopback.

Any process of the machine may read whether this one lives and is ready. Details and metrics need
the bearer token: user code may run on the same machine.

Every route stands in ROUTES with its policy, so that a test can walk them.
"""

import hmac
import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

ANY_LOCAL_PROCESS: Final = "any process of this machine"
BEARER: Final = "the bearer token"
_HOST: Final = "127.0.0.1"
_NAMES: Final = ("localhost", "127.0.0.1", "[::1]")
_PATIENCE_S: Final = 5.0


@dataclass(frozen=True)
class Check:
    """What one check found. Only `ok` decides; `detail` is for people."""

    ok: bool
    detail: str = ""


Checks = Mapping[str, Callable[[], Check]]


@dataclass(frozen=True)
class Answer:
    """Status, media type and body of an answer."""

    status: int
    media_type: str
    body: bytes


@dataclass(frozen=True)
class Route:
    """One address, who may use it, and what answers; `is_known` says that the token was right."""

    path: str
    policy: str
    answer: Callable[[Checks, bool], Answer]


def _alive(_checks: Checks, _is_known: bool) -> Answer:
    return Answer(200, "text/plain; charset=utf-8", b"ok\n")


def _ready(checks: Checks, is_known: bool) -> Answer:
    results = {name: check() for name, check in checks.items()}
    ready = all(check.ok for check in results.values())
    body: dict[str, object] = {"ready": ready}
    if is_known:
        body["checks"] = {
            name: {"ok": check.ok, "detail": check.detail} for name, check in results.items()
        }
    return Answer(200 if ready else 503, "application/json", json.dumps(body).encode())


def _metrics(_checks: Checks, _is_known: bool) -> Answer:
    return Answer(200, CONTENT_TYPE_LATEST, generate_latest())


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
        self._server = ThreadingHTTPServer((_HOST, port), _handler_for(checks, token))
        self._server.daemon_threads = True

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self._server.server_address[1])

    def start(self) -> None:
        """Begin to answer; returns at once."""
        threading.Thread(target=self._server.serve_forever, name="health", daemon=True).start()

    def stop(self) -> None:
        """Close the door."""
        self._server.shutdown()
        self._server.server_close()


def _handler_for(checks: Checks, token: str) -> type[BaseHTTPRequestHandler]:
    expected = f"Bearer {token}".encode()

    class Handler(BaseHTTPRequestHandler):
        timeout = _PATIENCE_S
        server_version = "slipway"
        sys_version = ""

        def do_GET(self) -> None:
            self._send(self._answer())

        def _answer(self) -> Answer:
            # A web page that got its name to point here must not read this through a browser.
            port = self.server.server_port  # type: ignore[attr-defined]
            hosts = [host.lower() for host in self.headers.get_all("Host", [])]
            if len(hosts) != 1 or hosts[0] not in {f"{name}:{port}" for name in _NAMES}:
                return Answer(421, "text/plain", f"ask localhost:{port}\n".encode())
            path = self.path.partition("?")[0]
            for route in ROUTES:
                if route.path != path:
                    continue
                is_known = self._is_known()
                if route.policy == BEARER and not is_known:
                    return Answer(401, "text/plain", b"send Authorization: Bearer TOKEN\n")
                return route.answer(checks, is_known)
            return Answer(404, "text/plain", b"there is /healthz, /readyz and /metrics\n")

        def _is_known(self) -> bool:
            """Tell whether the request has exactly one credential and that is the token."""
            credentials = self.headers.get_all("Authorization", [])
            return len(credentials) == 1 and hmac.compare_digest(
                credentials[0].encode("latin1", "replace"), expected
            )

        def _send(self, answer: Answer) -> None:
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
