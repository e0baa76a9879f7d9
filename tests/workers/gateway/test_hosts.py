"""The gateway answers at its own addresses, and to names that its operator gave it."""

import socket
from collections.abc import Iterator

import pytest

from tests.workers.serving import KEY, Plane, plane


@pytest.fixture(scope="module")
def named() -> Iterator[Plane]:
    """A gateway behind TLS, which customers also reach by a name of their own."""
    with plane() as dataplane:
        replica = dataplane.replica()
        names = ("predict.customer.example", "lab.example:9443", ".team.example")
        options = [f"--allow-host={name}" for name in names]
        dataplane.start_gateway("--public-url", "https://predict.example.org", *options)
        dataplane.serve(replica)
        yield dataplane


def _status(at: Plane, *hosts: str, target: str = "/v1/digits") -> int:
    lines = [f"GET {target} HTTP/1.1", *(f"Host: {host}" for host in hosts)]
    lines += [f"Authorization: Bearer {KEY}", "Connection: close"]
    with socket.create_connection(("127.0.0.1", at.port), timeout=15) as connection:
        connection.sendall(("\r\n".join(lines) + "\r\n\r\n").encode("latin1"))
        return int(connection.recv(4096).split(b" ", 2)[1])


@pytest.mark.parametrize(
    "host",
    [
        *("predict.example.org", "predict.example.org:443", "PREDICT.example.org."),
        *("predict.customer.example", "predict.customer.example:443", "lab.example:9443"),
        *("a.team.example", "team.example", "127.0.0.1:{port}", "localhost:{port}", "[::1]:{port}"),
        "predict.customer.example:{port}",
    ],
)
def test_its_own_addresses_are_accepted(named: Plane, host: str) -> None:
    assert _status(named, host.format(port=named.port)) == 200


@pytest.mark.parametrize("target", ["/healthz", "/v1/digits", "/nothing"])
@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "predict.example.org:80", "predict.example.org.evil.example"),
        *("lab.example", "xteam.example", "127.0.0.1", "localhost:1", "127.0.0.2:{port}"),
    ],
)
def test_a_foreign_address_is_refused(named: Plane, host: str, target: str) -> None:
    assert _status(named, host.format(port=named.port), target=target) == 421


@pytest.mark.parametrize("host", ["", "a b", "a:b", "a:0", "a:99999", "a/b", "a@b", "[::1", "a..b"])
def test_a_malformed_address_is_refused(named: Plane, host: str) -> None:
    assert _status(named, host) == 400


def test_one_address_is_needed(named: Plane) -> None:
    assert _status(named) == 400
    assert _status(named, "predict.example.org", "predict.example.org") == 400
    assert _status(named, "predict.example.org", target="http://predict.example.org/v1") == 400


def test_an_old_request_needs_an_address_as_well(named: Plane) -> None:
    with socket.create_connection(("127.0.0.1", named.port), timeout=15) as connection:
        connection.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
        assert connection.recv(4096).split(b" ", 2)[1] == b"400"
