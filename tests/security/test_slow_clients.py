"""Clients that hold connections by sending or reading slowly are cut by the portal."""

import contextlib
import select
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.portals import RunningPortal, running_portal
from tests.processes import wait_for

HEAD_S = 1.0
BODY_S = 1.0
PER_ADDRESS = 40
# A loaded machine is late itself; without a limit a connection would stay for minutes.
_SOON_S = 20.0
_ESTABLISHED = "01"


@pytest.fixture(scope="module")
def bounded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPortal]:
    """A portal with short limits."""
    with running_portal(
        tmp_path_factory.mktemp("bounded"),
        SLIPWAY_HEAD_TIMEOUT_S=str(HEAD_S),
        SLIPWAY_BODY_TIMEOUT_S=str(BODY_S),
        SLIPWAY_CONNECTIONS_PER_ADDRESS=str(PER_ADDRESS),
    ) as running:
        yield running


def drip(connection: socket.socket, data: bytes, *, every_s: float) -> tuple[bytes, float]:
    """Send a byte at a time until the server answers or closes; returns its answer and the time."""
    began = time.monotonic()
    for number in range(len(data)):
        if select.select([connection], [], [], every_s)[0]:
            break
        try:
            connection.send(data[number : number + 1])
        except (BrokenPipeError, ConnectionResetError):
            break
        assert time.monotonic() - began < _SOON_S, "nobody cuts this connection"
    return received(connection), time.monotonic() - began


def received(connection: socket.socket) -> bytes:
    """All that comes until the server closes."""
    connection.settimeout(_SOON_S)
    answer = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := connection.recv(65_536):
            answer += piece
    return answer


def one_response(connection: socket.socket) -> bytes:
    """Return one response with its body, which may come in several pieces."""
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += connection.recv(65_536)
    head, _, body = answer.partition(b"\r\n\r\n")
    length = next(
        int(line.partition(b":")[2])
        for line in head.lower().split(b"\r\n")
        if line.startswith(b"content-length:")
    )
    while len(body) < length:
        body += connection.recv(65_536)
    return head + b"\r\n\r\n" + body


def beginning(request: str, portal: RunningPortal) -> bytes:
    """The first lines of a request to the portal's own address."""
    host, port = portal.address
    return f"{request} HTTP/1.1\r\nHost: {host}:{port}\r\n".encode()


def connect(portal: RunningPortal) -> socket.socket:
    """Return a new connection."""
    return socket.create_connection(portal.address, timeout=_SOON_S)


@pytest.mark.thorough
def test_a_head_that_comes_byte_by_byte_is_cut(bounded: RunningPortal) -> None:
    head = beginning("GET /healthz", bounded) + b"X-Slow: " + b"a" * 10_000
    with connect(bounded) as connection:
        answer, took = drip(connection, head, every_s=0.1)
    assert answer.startswith(b"HTTP/1.1 408 "), answer
    assert b"connection: close" in answer
    assert took >= HEAD_S * 0.9


@pytest.mark.thorough
def test_line_breaks_in_front_of_a_head_do_not_keep_a_connection(bounded: RunningPortal) -> None:
    with connect(bounded) as connection:
        drip(connection, b"\r\n" * 5_000, every_s=0.1)


def test_a_connection_that_says_nothing_is_closed(bounded: RunningPortal) -> None:
    with connect(bounded) as connection:
        began = time.monotonic()
        assert received(connection) == b""
        assert time.monotonic() - began < _SOON_S


def test_the_second_head_on_a_connection_is_limited_too(bounded: RunningPortal) -> None:
    with connect(bounded) as connection:
        connection.sendall(beginning("GET /healthz", bounded) + b"\r\n")
        assert one_response(connection).startswith(b"HTTP/1.1 200 ")
        answer, _ = drip(connection, b"GET /healthz HTTP/1.1\r\nX: " + b"a" * 9_000, every_s=0.1)
    assert answer.startswith(b"HTTP/1.1 408 "), answer


def test_a_body_that_comes_byte_by_byte_is_cut(bounded: RunningPortal) -> None:
    head = (
        beginning("POST /api/v1/projects", bounded)
        + (
            f"Authorization: Bearer {bounded.tokens['alice']}\r\n"
            "Content-Type: application/json\r\nContent-Length: 9000\r\n\r\n"
        ).encode()
    )
    with connect(bounded) as connection:
        connection.sendall(head)
        answer, _ = drip(connection, b" " * 9_000, every_s=0.1)
    assert answer.startswith(b"HTTP/1.1 408 "), answer


def test_a_head_without_end_is_refused(bounded: RunningPortal) -> None:
    with connect(bounded) as connection:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(beginning("GET /healthz", bounded) + b"X-Long: ")
            for _ in range(1024):
                connection.sendall(b"a" * 65_536)
            pytest.fail("64 MiB of a head were read")
        assert received(connection)[:13] in (b"HTTP/1.1 431 ", b"")


@pytest.mark.thorough
def test_ordinary_requests_on_one_connection_outlast_the_limits(bounded: RunningPortal) -> None:
    with bounded.client("alice") as alice:
        end = time.monotonic() + 3 * max(HEAD_S, BODY_S)
        while time.monotonic() < end:
            assert alice.get("/whoami").status_code == 200


def test_one_address_has_so_many_connections_and_no_more(bounded: RunningPortal) -> None:
    held = [connect(bounded) for _ in range(PER_ADDRESS)]
    try:
        for connection in held:
            connection.sendall(b"GET /healthz HTTP/1.1\r\n")
        with connect(bounded) as extra:
            answer = received(extra)
        assert answer.startswith(b"HTTP/1.1 503 "), answer
        assert b"too_many_connections_from_here" in answer
    finally:
        for connection in held:
            connection.close()
    with bounded.client("alice") as alice:  # what they held is free again
        assert alice.get("/whoami").status_code == 200


@pytest.mark.thorough
def test_a_client_that_does_not_read_is_cut(bounded: RunningPortal) -> None:
    with bounded.client("alice") as alice:
        size = len(alice.get("/openapi.json").content)
    request = beginning("GET /api/v1/openapi.json", bounded)
    request += f"Authorization: Bearer {bounded.tokens['alice']}\r\n\r\n".encode()
    with connect(bounded) as connection:
        connection.sendall(request * (64 * 1024**2 // size))
        port = connection.getsockname()[1]
        wait_for(lambda: not is_held(bounded, port), "end of the connection", within_s=_SOON_S)


def is_held(portal: RunningPortal, client_port: int) -> bool:
    """Whether the portal has the connection from this port, by the kernel's list of sockets."""
    ends = f":{portal.address[1]:04X} ", f":{client_port:04X} "
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        local, remote, state = line.split()[1:4]
        if f"{local} ".endswith(ends[0]) and f"{remote} ".endswith(ends[1]):
            return state == _ESTABLISHED
    return False
