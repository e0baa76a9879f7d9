"""Asking a process whether it is ready."""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from portal.config.supervision.probes import (
    Probe,
    http_alive,
    http_ready,
    redis_alive,
    redis_ready,
    touched,
)
from tests.processes import free_ports

Answerer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def _answering(text: bytes) -> Answerer:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n") if b"HTTP" in text else await reader.readline()
        writer.write(text)
        await writer.drain()
        if b"HTTP" in text or not text:
            writer.close()

    return answer


def _ask(make: Callable[[int], Probe], text: bytes) -> str:
    async def run() -> str:
        server = await asyncio.start_server(_answering(text), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server:
            return await make(port)()

    return asyncio.run(run())


def _http(port: int) -> Probe:
    return http_ready("127.0.0.1", port)


def _redis(port: int) -> Probe:
    return redis_ready(port, "secret")


def test_status_200_is_ready() -> None:
    assert _ask(_http, b"HTTP/1.1 200 OK\r\n\r\nok") == ""


def test_another_status_is_told_with_its_body() -> None:
    answer = _ask(_http, b'HTTP/1.1 503 Service Unavailable\r\n\r\n{"database": false}')
    assert answer == '/readyz answers 503 Service Unavailable {"database": false}'


def test_pong_is_ready() -> None:
    assert _ask(_redis, b"+OK\r\n+PONG\r\n") == ""


def test_a_redis_with_another_password_is_not_ready() -> None:
    answer = _ask(_redis, b"-WRONGPASS invalid\r\n-NOAUTH Authentication required.\r\n")
    assert "WRONGPASS" in answer


def test_a_port_nobody_listens_on_is_told() -> None:
    port = free_ports(1)[0]
    assert asyncio.run(_http(port)()) == f"nothing listens on port {port} yet"


@contextmanager
def _silent_listener() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


@pytest.mark.parametrize("make", [_http, _redis])
def test_a_frozen_process_costs_a_second(make: Callable[[int], Probe]) -> None:
    with _silent_listener() as port:
        assert asyncio.run(make(port)()) == f"port {port} does not respond"


@pytest.mark.parametrize(
    ("make", "answer"),
    [
        (lambda port: http_alive("127.0.0.1", port), b"HTTP/1.1 503 Service Unavailable\r\n\r\n"),
        (lambda port: http_alive("127.0.0.1", port), b""),
        (redis_alive, b"-NOAUTH Authentication required.\r\n"),
    ],
)
def test_an_error_and_a_closed_connection_are_signs_of_life(
    make: Callable[[int], Probe], answer: bytes
) -> None:
    assert _ask(make, answer) == ""


def test_a_file_that_is_touched_is_a_sign_of_life(tmp_path: Path) -> None:
    file = tmp_path / "connected"
    probe = touched(file)
    assert "gone" in asyncio.run(probe())
    file.write_text("1")
    assert asyncio.run(probe()) == ""
    assert "not touched" in asyncio.run(probe())
    os.utime(file, ns=(1, 1))
    assert asyncio.run(probe()) == ""
