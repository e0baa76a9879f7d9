"""The health endpoint of processes that have no other port."""

import contextlib
import select
import socket
import time
from collections.abc import Iterator

import httpx
import pytest

from workers.health import (
    _HEAD_TIMEOUT_S,
    _MAX_CONNECTIONS,
    ANY_LOCAL_PROCESS,
    BEARER,
    ROUTES,
    Check,
    HealthServer,
)

_TOKEN = "token-of-this-test"
_BEARER = {"Authorization": f"Bearer {_TOKEN}"}


class Part:
    """Something whose health the test decides."""

    def __init__(self) -> None:
        self.check = Check(True, "answers")

    def __call__(self) -> Check:
        return self.check


@pytest.fixture(scope="module")
def _part() -> Part:
    return Part()


@pytest.fixture(autouse=True)
def part(_part: Part) -> Part:
    _part.check = Check(True, "answers")
    return _part


# One for all tests: stopping a server takes half a second.
@pytest.fixture(scope="module")
def door(_part: Part) -> Iterator[httpx.Client]:
    server = HealthServer(0, {"part": _part}, token=_TOKEN)
    server.start()
    with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", headers=_BEARER) as client:
        yield client
    server.stop()


@pytest.fixture
def stranger(door: httpx.Client) -> Iterator[httpx.Client]:
    """A process of this machine that knows no token."""
    with httpx.Client(base_url=door.base_url) as client:
        yield client


def test_every_route_declares_its_policy() -> None:
    assert {route.path: route.policy for route in ROUTES} == {
        "/healthz": ANY_LOCAL_PROCESS,
        "/readyz": ANY_LOCAL_PROCESS,
        "/metrics": BEARER,
    }


def test_without_the_token_there_is_a_status_and_no_detail(
    stranger: httpx.Client, part: Part
) -> None:
    assert stranger.get("/healthz").text == "ok\n"
    assert stranger.get("/readyz").json() == {"ready": True}
    part.check = Check(False, "redis://internal:6379 does not answer")
    answer = stranger.get("/readyz")
    assert answer.status_code == 503
    assert answer.json() == {"ready": False}


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("Authorization", "Bearer wrong")],
        [("Authorization", f"Basic {_TOKEN}")],
        [("Authorization", _TOKEN)],
        [("Authorization", "Bearer")],
        [("Authorization", f"Bearer {_TOKEN}"), ("Authorization", f"Bearer {_TOKEN}")],
        [("Authorization", "Bearer wrong"), ("Authorization", f"Bearer {_TOKEN}")],
        [("Authorization_", f"Bearer {_TOKEN}")],
    ],
)
def test_metrics_need_the_token(stranger: httpx.Client, headers: list[tuple[str, str]]) -> None:
    answer = stranger.get("/metrics", headers=headers)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert "python_info" not in answer.text
    assert stranger.get("/readyz", headers=headers).json() == {"ready": True}


def test_a_server_without_a_token_gives_no_details_to_anybody(part: Part) -> None:
    with pytest.raises(ValueError, match="token"):
        HealthServer(0, {"part": part}, token="")


def test_it_listens_on_loopback_alone() -> None:
    server = HealthServer(0, {}, token=_TOKEN)
    assert server._server.server_address[0] == "127.0.0.1"
    server._server.server_close()


def test_ready_follows_the_checks_and_says_which_one_failed(door: httpx.Client, part: Part) -> None:
    answer = door.get("/readyz")
    assert answer.status_code == 200
    part.check = Check(False, "does not answer")
    answer = door.get("/readyz")
    assert answer.status_code == 503
    assert answer.json() == {
        "ready": False,
        "checks": {"part": {"ok": False, "detail": "does not answer"}},
    }
    assert door.get("/healthz").status_code == 200


def test_metrics_are_in_the_format_of_prometheus(door: httpx.Client) -> None:
    answer = door.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    assert "python_info" in answer.text


@pytest.mark.parametrize(
    ("host", "status"),
    [
        *(("localhost:{port}", 200), ("127.0.0.1:{port}", 200), ("[::1]:{port}", 200)),
        *(("LOCALHOST:{port}", 200), ("localhost", 421), ("127.0.0.1:9000", 421)),
        *(
            ("localhost.:{port}", 200),
            ("localhost..:{port}", 400),
            ("[0:0:0:0:0:0:0:1]:{port}", 200),
        ),
        *(("localhost:{port}, evil.example", 400), ("alice@localhost:{port}", 400), ("", 400)),
        *(("evil.example", 421), ("evil.example:{port}", 421)),
    ],
)
def test_a_web_page_under_another_name_cannot_read_it(
    door: httpx.Client, host: str, status: int
) -> None:
    address = host.format(port=door.base_url.port)
    assert door.get("/metrics", headers={"Host": address}).status_code == status


def _raw(door: httpx.Client, request: str) -> bytes:
    """Send a request as it is; returns the first line of the answer."""
    with socket.create_connection(("127.0.0.1", door.base_url.port), timeout=10) as connection:
        connection.sendall(request.encode("latin1"))
        return connection.makefile("rb").readline()


@pytest.mark.parametrize("hosts", [0, 2])
def test_a_request_has_one_host(door: httpx.Client, hosts: int) -> None:
    lines = f"Host: localhost:{door.base_url.port}\r\n" * hosts
    assert b" 400 " in _raw(door, f"GET /healthz HTTP/1.1\r\n{lines}\r\n")


@pytest.mark.parametrize(
    "target", ["http://evil.example/healthz", "http://localhost:{port}/healthz", "healthz", "*"]
)
def test_a_request_target_is_a_path(door: httpx.Client, target: str) -> None:
    port = door.base_url.port
    head = f"GET {target.format(port=port)} HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n"
    assert b" 400 " in _raw(door, head)


@pytest.mark.thorough
def test_a_head_that_comes_byte_by_byte_is_cut(door: httpx.Client) -> None:
    address = ("127.0.0.1", door.base_url.port)
    with socket.create_connection(address, timeout=30) as slow:
        began = time.monotonic()
        slow.sendall(b"GET /healthz HTTP/1.1\r\n")
        while not select.select([slow], [], [], 1.0)[0]:
            assert time.monotonic() - began < 2 * _HEAD_TIMEOUT_S, "nobody closes this connection"
            slow.sendall(b"x")
        closed_after(slow)
    assert door.get("/healthz").status_code == 200


@pytest.mark.thorough
def test_connections_are_bounded(door: httpx.Client) -> None:
    address = ("127.0.0.1", door.base_url.port)
    held = [socket.create_connection(address, timeout=30) for _ in range(_MAX_CONNECTIONS)]
    try:
        for connection in held:
            connection.sendall(b"GET /healthz HTTP/1.1\r\n")
        with socket.create_connection(address, timeout=30) as extra:
            assert closed_after(extra) < 3.0, "it waits for a head like the others"
    finally:
        for connection in held:
            connection.close()
    assert door.get("/healthz").status_code == 200


def closed_after(connection: socket.socket) -> float:
    """Read until the server closes; returns the seconds that it took."""
    began = time.monotonic()
    with contextlib.suppress(ConnectionResetError):
        while connection.recv(65_536):
            pass
    return time.monotonic() - began


def test_other_addresses_do_not_exist(door: httpx.Client) -> None:
    assert door.get("/admin").status_code == 404
    assert door.post("/readyz").status_code == 501
