"""The health door of a process that has no other: /healthz, /readyz, /metrics on loopback.

Every route stands in ROUTES with its policy, so that a test can walk them.
"""

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

LOOPBACK_ONLY: Final = "loopback only"
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
    """One address, who may use it, and what answers."""

    path: str
    policy: str
    answer: Callable[[Checks], Answer]


def _alive(_checks: Checks) -> Answer:
    return Answer(200, "text/plain; charset=utf-8", b"ok\n")


def _ready(checks: Checks) -> Answer:
    found = {name: check() for name, check in checks.items()}
    ready = all(check.ok for check in found.values())
    told = {name: {"ok": check.ok, "detail": check.detail} for name, check in found.items()}
    body = json.dumps({"ready": ready, "checks": told}).encode()
    return Answer(200 if ready else 503, "application/json", body)


def _metrics(_checks: Checks) -> Answer:
    return Answer(200, CONTENT_TYPE_LATEST, generate_latest())


ROUTES: Final = (
    Route("/healthz", LOOPBACK_ONLY, _alive),
    Route("/readyz", LOOPBACK_ONLY, _ready),
    Route("/metrics", LOOPBACK_ONLY, _metrics),
)


class HealthServer:
    """Answers ROUTES on a loopback port, in threads of its own, from `start` to `stop`."""

    def __init__(self, port: int, checks: Checks) -> None:
        """Open the port (0 lets the system choose); raises OSError when it is taken."""
        self._server = ThreadingHTTPServer((_HOST, port), _handler_for(checks))
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


def _handler_for(checks: Checks) -> type[BaseHTTPRequestHandler]:
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
                if route.path == path:
                    return route.answer(checks)
            return Answer(404, "text/plain", b"there is /healthz, /readyz and /metrics\n")

        def _send(self, answer: Answer) -> None:
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.media_type)
            self.send_header("Content-Length", str(len(answer.body)))
            self.send_header("X-Content-Type-Options", "nosniff")
            self.end_headers()
            self.wfile.write(answer.body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Keep probes out of the log."""

    return Handler
