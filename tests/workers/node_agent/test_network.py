"""A task of a project whose network rule is `platform` reaches the platform and nothing else."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from slipway.schemas.agent import ServiceAddress
from tests.workers.machines import Site

SCRIPT = """
import json, socket, sys
def reach(host, port):
    try:
        with socket.create_connection((host, int(port)), timeout=5) as connection:
            connection.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
            return connection.makefile("rb").readline().decode().split()[1]
    except OSError as error:
        return type(error).__name__
answer = [reach(*address.split("=")) for address in {addresses!r}]
answer += [sorted(name for _, name in socket.if_nameindex())]
"""


class Handler(BaseHTTPRequestHandler):
    """Answers 204 to everything."""

    def do_GET(self) -> None:
        """Answer."""
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    """A service on the loopback interface of the machine."""
    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=running.serve_forever, daemon=True)
    thread.start()
    yield running
    running.shutdown()
    running.server_close()


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """An agent and its portal."""
    running = Site()
    yield running
    running.close()


def test_a_task_without_network_reaches_its_services_by_address_and_by_name(
    site: Site, server: ThreadingHTTPServer
) -> None:
    isolation = site.portal.state.heartbeats[-1].facts.isolation[0]
    if "network" not in isolation.features:
        pytest.skip(f"this machine cannot keep a task from the network: {isolation.detail}")
    port = server.server_address[1]
    addresses = [f"127.0.0.1={port}", f"localhost={port}", "127.0.0.1=1", "192.0.2.1=80"]
    script = SCRIPT.format(addresses=addresses)
    services = [ServiceAddress(host="127.0.0.1", port=port)]
    rule = {"network": "platform", "services": services}
    assert site.answer_of(script, **rule) == [
        *("204", "204", "ConnectionRefusedError", "OSError"),
        ["lo"],
    ]
    # With a name of its own the service is found by /etc/hosts, for there is no name server.
    named = [ServiceAddress(host="localhost", port=port)]
    assert site.answer_of(script, network="platform", services=named)[:2] == ["204", "204"]
    closed = site.answer_of(script, network="platform")
    assert closed[:2] == ["ConnectionRefusedError", "ConnectionRefusedError"]
    assert site.answer_of(script)[:2] == ["204", "204"], "the rule of other projects is open"
