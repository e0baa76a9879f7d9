"""Readiness and liveness probes of processes, with short timeouts."""

import asyncio
import contextlib
import os
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

# Returns "" when the process is ready, or alive, else why it is not.
Probe = Callable[[], Coroutine[Any, Any, str]]
# The variable that names the file which a supervised process touches once a second.
ALIVE_FILE = "ALIVE_FILE"
_PATIENCE_S = 1.0
_PATIENCE_WITH_THE_LIVING_S = 3.0
_MOST_BYTES = 4096


_Connect = Callable[[], Coroutine[Any, Any, tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


async def _exchange(connect: _Connect, message: bytes) -> bytes:
    reader, writer = await connect()
    try:
        writer.write(message)
        await writer.drain()
        answer = b""
        while len(answer) < _MOST_BYTES and (chunk := await reader.read(_MOST_BYTES)):
            answer += chunk
            if answer.startswith((b"+", b"-")) and answer.count(b"\r\n") >= message.count(b"\r\n"):
                break  # Redis keeps the connection open
        return answer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def _query(
    connect: _Connect, where: str, message: bytes, patience_s: float = _PATIENCE_S
) -> bytes | str:
    try:
        return await asyncio.wait_for(_exchange(connect, message), patience_s)
    except TimeoutError:
        return f"{where} does not respond"
    except OSError:
        return f"nothing listens on {where} yet"


def _fault_of(answer: bytes | str, path: str) -> str:
    """Return "" for an answer with status 200, else the reason."""
    if isinstance(answer, str):
        return answer
    head, _, body = answer.partition(b"\r\n\r\n")
    status = head.split(b"\r\n", 1)[0].split(b" ")
    if len(status) > 1 and status[1] == b"200":
        return ""
    words = b" ".join(body.split())[:200].decode(errors="replace")
    return f"{path} answers {b' '.join(status[1:]).decode(errors='replace')} {words}".rstrip()


def _request(path: str, host: str, secret: str) -> bytes:
    """Return a request for a page, with the bearer token if there is one."""
    lines = [f"GET {path} HTTP/1.1", f"Host: {host}", "Connection: close"]
    if secret:
        lines.append(f"Authorization: Bearer {secret}")
    return "\r\n".join([*lines, "", ""]).encode()


def http_ready(
    host: str, port: int, path: str = "/readyz", *, named: str = "", secret: str = ""
) -> Probe:
    """Return a probe that expects status 200 of a page. `named` overrides the Host header."""
    message = _request(path, named or _host_header(host, port), secret)

    async def probe() -> str:
        connect = partial(asyncio.open_connection, host, port)
        return _fault_of(await _query(connect, f"port {port}", message), path)

    return probe


def http_alive(host: str, port: int, path: str = "/healthz", *, named: str = "") -> Probe:
    """Return a probe that accepts any response of a page: an error is a sign of life as well."""
    message = _request(path, named or _host_header(host, port), "")

    async def probe() -> str:
        connect = partial(asyncio.open_connection, host, port)
        return _unresponsive_reason(
            await _query(connect, f"port {port}", message, _PATIENCE_WITH_THE_LIVING_S)
        )

    return probe


def unix_http_alive(socket: Path, path: str) -> Probe:
    """Return a probe that accepts any response of a page behind a Unix socket."""
    message = _request(path, "localhost", "")

    async def probe() -> str:
        connect = partial(asyncio.open_unix_connection, socket)
        return _unresponsive_reason(
            await _query(connect, socket.name, message, _PATIENCE_WITH_THE_LIVING_S)
        )

    return probe


def redis_alive(port: int) -> Probe:
    """Return a probe that accepts any response of a Redis on loopback, even a refusal."""

    async def probe() -> str:
        connect = partial(asyncio.open_connection, "127.0.0.1", port)
        return _unresponsive_reason(
            await _query(connect, f"port {port}", b"PING\r\n", _PATIENCE_WITH_THE_LIVING_S)
        )

    return probe


def touched(path: Path) -> Probe:
    """Return a probe that expects a file to have been touched since the previous probe."""
    seen = 0

    def look() -> str:
        nonlocal seen
        try:
            now = path.stat().st_mtime_ns
        except OSError:
            return f"{path.name} is gone"
        before, seen = seen, now
        return "" if now != before else f"{path.name} was not touched"

    async def probe() -> str:
        return look()

    return probe


def _unresponsive_reason(answer: bytes | str) -> str:
    # A closed connection is a sign of life too: a process closes it if a client has too many open.
    return answer if isinstance(answer, str) else ""


def _host_header(host: str, port: int) -> str:
    return f"{f'[{host}]' if ':' in host else host}:{port}"


def unix_http_ready(socket: Path, path: str, *, secret: str = "") -> Probe:
    """Return a probe that expects status 200 of a page behind a Unix socket."""
    message = _request(path, "localhost", secret)

    async def probe() -> str:
        connect = partial(asyncio.open_unix_connection, socket)
        return _fault_of(await _query(connect, socket.name, message), path)

    return probe


def pid_file_ready(path: Path) -> Probe:
    """Return a probe that expects a file with the PID of a running process."""

    def is_there() -> bool:
        try:
            os.kill(int(path.read_text("ascii")), 0)
        except (OSError, ValueError):
            return False
        return True

    async def probe() -> str:
        return "" if is_there() else "it is not connected yet"

    return probe


def redis_ready(port: int, password: str) -> Probe:
    """Return a probe that expects PONG from a Redis on loopback."""
    message = f"AUTH {password}\r\nPING\r\n".encode()

    async def probe() -> str:
        connect = partial(asyncio.open_connection, "127.0.0.1", port)
        answer = await _query(connect, f"port {port}", message)
        if isinstance(answer, str):
            return answer
        return "" if b"+PONG" in answer else answer.decode(errors="replace").strip()

    return probe
