"""Proxy, Hub and servers of notebooks answer at their own addresses alone, ports included."""

import select
import socket
import time
from urllib.parse import urlsplit

import pytest

from tests.notebooks import Person
from tests.portals import RunningPortal
from tests.turns import thorough_after

pytestmark = pytest.mark.integration

_UPGRADE = (
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
)


def _status(address: tuple[str, int], target: str, *lines: str) -> int:
    head = [f"GET {target} HTTP/1.1", *(lines or ("Connection: close",))]
    with socket.create_connection(address, timeout=20) as connection:
        connection.sendall(("\r\n".join(head) + "\r\n\r\n").encode("latin1"))
        return int(connection.recv(4096).split(b" ", 2)[1])


def test_the_proxy_answers_at_the_address_of_notebooks(running: RunningPortal) -> None:
    at = running.installation
    address = ("127.0.0.2", at.notebooks_port)
    own = f"Host: 127.0.0.2:{at.notebooks_port}"
    close = "Connection: close"
    assert _status(address, "/hub/health", own, close) == 200
    for target in ("/hub/health", "/user/usr_1/nbs-1/lab", "/_chp_healthz", "/"):
        for host in (
            # The portal's name would bring the portal's cookies along.
            *(f"localhost:{at.notebooks_port}", f"127.0.0.1:{at.notebooks_port}"),
            *(f"127.0.0.2:{at.portal_port}", "127.0.0.2", "evil.example"),
        ):
            assert _status(address, target, f"Host: {host}", close) == 421, (target, host)
        assert _status(address, target, f"Host: evil.example:{at.notebooks_port}", *_UPGRADE) == 421
    assert _status(address, "/hub/health", own, own, close) == 400
    assert _status(address, "http://evil.example/hub/health", own, close) == 400
    assert _status(address, "/hub/health", close) == 400


def test_the_interface_for_routes_answers_to_the_hub(running: RunningPortal) -> None:
    at = running.installation
    address = ("127.0.0.1", at.proxy_port)
    assert _status(address, "/api/routes", f"Host: 127.0.0.1:{at.proxy_port}") == 403
    assert _status(address, "/api/routes", "Host: evil.example") == 421
    assert _status(address, "/api/routes", f"Host: evil.example:{at.proxy_port}") == 421


def test_the_hub_answers_to_notebooks_and_this_machine(running: RunningPortal) -> None:
    at = running.installation
    address = ("127.0.0.1", at.hub_port)
    for host in (f"127.0.0.2:{at.notebooks_port}", f"127.0.0.1:{at.hub_port}"):
        assert _status(address, "/hub/health", f"Host: {host}") == 200
    for host in ("evil.example", f"127.0.0.1:{at.portal_port}", f"evil.example:{at.hub_port}"):
        assert _status(address, "/hub/health", f"Host: {host}") == 421
        assert _status(address, "/hub/api/users", f"Host: {host}") == 421
    assert _status(address, "/hub/health", "Host: a", "Host: b") == 400
    own = f"Host: 127.0.0.1:{at.hub_port}"
    for target in ("http://evil.example/hub/api", f"http://{own[6:]}/hub/api", "hub/api"):
        assert _status(address, target, own) == 400, target


@pytest.mark.parametrize(
    ("port", "within_s"), thorough_after(0, [("hub_port", 30.0), ("proxy_port", 12.0)])
)
def test_a_head_that_comes_byte_by_byte_is_cut(
    running: RunningPortal, port: str, within_s: float
) -> None:
    address = ("127.0.0.1", getattr(running.installation, port))
    with socket.create_connection(address, timeout=20) as connection:
        began = time.monotonic()
        connection.sendall(b"GET /hub/health HTTP/1.1\r\nX: ")
        while not select.select([connection], [], [], 1.0)[0]:
            assert time.monotonic() - began < within_s + 15, "nobody cuts this connection"
            connection.sendall(b"x")


def test_a_server_answers_to_notebooks_and_the_hub(running: RunningPortal, bob: Person) -> None:
    server = bob.ready("hosts", tier="desk")
    desk = bob.open(server)
    output = desk.run(desk.kernel(), "import os; print(os.environ['JUPYTERHUB_SERVICE_URL'])")
    url = urlsplit(output.strip())
    address = (str(url.hostname), int(url.port or 0))
    own = f"127.0.0.2:{running.installation.notebooks_port}"
    for host in (own, url.netloc):
        assert _status(address, f"{url.path}api", f"Host: {host}") == 200
    for host in ("evil.example", f"localhost:{address[1]}", f"127.0.0.1:{address[1] + 1}"):
        assert _status(address, f"{url.path}api", f"Host: {host}") == 421
        assert _status(address, f"{url.path}lab", f"Host: {host}") == 421
        assert _status(address, "/nowhere", f"Host: {host}", *_UPGRADE) == 421
    bob.stop(server)
