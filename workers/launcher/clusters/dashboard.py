"""Serves the dashboard of a cluster to the relay: starts it when it is first opened.

Runs inside of the sandbox of rank 0's task, in the environment of the job: standard library only.
Each connection is one HTTP request. It is passed on to the dashboard, which listens on loopback,
with the token of the cluster, which nobody outside of the task gets.
"""

import asyncio
import html
import json
import os
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from workers.launcher.clusters.member import without_rank
from workers.launcher.rank_env import LISTENER_VARIABLE

FILE: Final = "dashboard.json"
_HOST: Final = "127.0.0.1"
_HEAD_LIMIT: Final = 64 << 10
_HEAD_WITHIN_S: Final = 10.0
_START_WITHIN_S: Final = 90.0
_POLL_S: Final = 0.2
_BLOCK: Final = 64 << 10
_TAIL_CHARACTERS: Final = 2000
_MOST_CONNECTIONS: Final = 64
_PAGE: Final = (
    "<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title>"
    "<body style='font:16px/1.5 system-ui;max-width:40rem;margin:3rem auto;padding:0 1rem'>"
    "<h1 style='font-size:1.25rem'>{title}</h1><p style='white-space:pre-wrap'>{text}</p>"
)


@dataclass(frozen=True)
class Dashboard:
    """Start of a dashboard: its command, in which `{port}` stands for the port.

    `authorization` is a header with the token, and `variables` are those of its process. A
    dashboard that cannot be started has an `obstacle`.
    """

    label: str
    command: tuple[str, ...] = ()
    authorization: str = ""
    variables: dict[str, str] | None = None
    obstacle: str = ""

    def write(self, folder: Path) -> None:
        """Write this for the program that starts it, to the private folder of the task."""
        path = folder / FILE
        path.touch(0o600)
        path.write_text(json.dumps(self.__dict__))


class _Unavailable(Exception):
    """The dashboard cannot be reached, with the reason for people."""


class _Forwarder:
    """Accepts connections, and starts the dashboard for the first."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._starting = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None
        self._port = 0
        self._connections = 0

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one request."""
        self._connections += 1
        try:
            if self._connections <= _MOST_CONNECTIONS:
                await self._serve(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError):
            pass  # one side has gone
        finally:
            self._connections -= 1
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _HEAD_WITHIN_S)
        try:
            dashboard = self._description()
            await self._start(dashboard)
        except _Unavailable as error:
            writer.write(_answer(str(error)))
            await writer.drain()
            return
        line, rest = head.split(b"\r\n", 1)
        token = dashboard.authorization
        added = f"Authorization: {token}\r\n".encode("latin1") if token else b""
        below, to_dashboard = await asyncio.open_connection(_HOST, self._port)
        try:
            to_dashboard.write(line + b"\r\n" + added + rest)
            up = asyncio.create_task(_copy(reader, to_dashboard))
            await _copy(below, writer)
            up.cancel()
        finally:
            to_dashboard.close()

    def _description(self) -> Dashboard:
        """Return how to start the dashboard. Raises _Unavailable."""
        try:
            document: dict[str, Any] = json.loads((self._folder / FILE).read_text())
        except (OSError, ValueError):
            raise _Unavailable(
                "The cluster of this job is not ready yet. Reload this page in a few seconds."
            ) from None
        dashboard = Dashboard(**document | {"command": tuple(document["command"])})
        if dashboard.obstacle:
            raise _Unavailable(dashboard.obstacle)
        return dashboard

    async def _start(self, dashboard: Dashboard) -> None:
        """Return once the dashboard listens. Raises _Unavailable."""
        async with self._starting:
            process = self._process
            if process is not None and process.returncode is None:
                return
            self._port = _free_port()
            log = self._folder / "dashboard.log"
            with log.open("wb") as output:
                self._process = process = await asyncio.create_subprocess_exec(
                    *(part.replace("{port}", str(self._port)) for part in dashboard.command),
                    stdout=output,
                    stderr=output,
                    env={**without_rank(os.environ), **(dashboard.variables or {})},
                )
            loop = asyncio.get_running_loop()
            deadline = loop.time() + _START_WITHIN_S
            while not await _listens(self._port):
                tail = log.read_text(errors="replace")[-_TAIL_CHARACTERS:].strip()
                if process.returncode is not None:
                    raise _Unavailable(
                        f"{dashboard.label} ended with status {process.returncode} before it "
                        f"could be opened. Its last output:\n{tail or '(none)'}"
                    )
                if loop.time() > deadline:
                    process.kill()
                    raise _Unavailable(
                        f"{dashboard.label} did not start within {_START_WITHIN_S:g} s. Its last "
                        f"output:\n{tail or '(none)'}"
                    )
                await asyncio.sleep(_POLL_S)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(_BLOCK):
            writer.write(data)
            await writer.drain()
        writer.write_eof()


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection(_HOST, port)
    except OSError:
        return False
    writer.close()
    return True


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _answer(text: str) -> bytes:
    body = _PAGE.format(title="The dashboard cannot be opened", text=html.escape(text)).encode()
    head = (
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/html; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


async def _run() -> None:
    listener = socket.socket(fileno=int(os.environ.pop(LISTENER_VARIABLE)))
    listener.setblocking(False)
    forwarder = _Forwarder(Path(os.environ["TMPDIR"]))
    server = await asyncio.start_unix_server(forwarder.accept, sock=listener, limit=_HEAD_LIMIT)
    await server.serve_forever()


def main() -> None:
    """Serve until the task ends."""
    with suppress(KeyboardInterrupt):
        asyncio.run(_run())
    sys.exit(0)


if __name__ == "__main__":
    main()
