"""A relay in its own process, a portal that grants targets to nodes, and ends of connections."""

import asyncio
import gc
import json
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
from websockets.asyncio.client import ClientConnection, connect

from slipway.schemas.relay import RelayTarget
from tests.live import ROOT
from tests.ports import free_ports
from tests.processes import Program, clean_environment, wait_for
from workers.node_agent.portal import Portal
from workers.node_agent.relay import NodeRelay
from workers.relay.frames import MAX_FRAME, FrameKind, RegisterAnswer, pack_text, unpack

_PATH = f"{ROOT / 'platform'}:{ROOT}"


class GrantingPortal:
    """Answers `GET /api/agent/v1/relay` to nodes, by their tokens, as the portal does."""

    def __init__(self) -> None:
        self.nodes: dict[str, list[RelayTarget]] = {}
        self.relay_port = 0
        self.is_away = False
        portal = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                token = self.headers.get("Authorization", "").removeprefix("Bearer ")
                if portal.is_away:
                    self._send(503, {"code": "away", "detail": "Away."})
                elif self.path != "/api/agent/v1/relay" or token not in portal.nodes:
                    problem = {"code": "invalid_node_token", "detail": "The token is unknown."}
                    self._send(401, problem)
                else:
                    targets = [target.model_dump() for target in portal.nodes[token]]
                    grant = {"node_id": f"nod_{token}", "port": portal.relay_port}
                    self._send(200, grant | {"targets": targets})

            def _send(self, status: int, body: dict[str, Any]) -> None:
                content = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()


class Relay:
    """A relay process that can be killed and started again."""

    def __init__(self, folder: Path, portal: GrantingPortal) -> None:
        self.folder = folder
        self.doors = folder / "doors"
        self.portal = portal
        (self.port,) = free_ports(1)
        portal.relay_port = self.port
        self.url = f"ws://127.0.0.1:{self.port}/relay"
        self.process = self._start()

    def _start(self) -> Program:
        argv = [
            *(sys.executable, "-m", "workers.relay", "--port", str(self.port)),
            *("--folder", str(self.doors), "--portal-url", self.portal.url),
        ]
        program = Program(
            argv, env=clean_environment() | {"PYTHONPATH": _PATH}, output=self.folder / "relay.log"
        )
        wait_for(self._is_ready, "the relay", within_s=60)
        return program

    def _is_ready(self) -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{self.port}/readyz").is_success
        except httpx.TransportError:
            return False

    def restart(self) -> None:
        """Kill it, and start it again at the same port."""
        self.process.end()
        self.process = self._start()

    def door(self, target: RelayTarget) -> Path:
        """Return the socket of a target."""
        return self.doors / target.door


@contextmanager
def running_relay() -> Iterator[Relay]:
    """Yield a relay with a portal. Its folder is short, because sockets are in it."""
    folder = Path(tempfile.mkdtemp(prefix="relay-", dir="/tmp"))
    portal = GrantingPortal()
    relay = Relay(folder, portal)
    try:
        yield relay
    finally:
        relay.process.end()
        portal.close()
        shutil.rmtree(folder)
        # Connections that tests broke off complain when they are collected: not in other tests.
        gc.collect()


class Node:
    """A node with workloads, whose agent end is the real one."""

    def __init__(self, relay: Relay, token: str) -> None:
        self._relay = relay
        self.token = token
        self.sockets: dict[str, tuple[RelayTarget, Path]] = {}
        relay.portal.nodes.setdefault(token, [])
        self._portal = Portal(relay.portal.url)
        self._portal.use_token(token)
        self._task: asyncio.Task[None] | None = None
        self._servers: list[asyncio.Server] = []

    async def serve(self, workload: str, handler: Any, *, epoch: int = 1) -> RelayTarget:
        """Start a workload that listens, and wait for its door."""
        target = self.grant(workload, epoch=epoch)
        path = self._relay.folder / f"{target.name[:8]}.workload"
        self._servers.append(await asyncio.start_unix_server(handler, path, backlog=4096))
        self.sockets[target.name] = (target, path)
        if self._task is None:
            relay = NodeRelay(self._portal, self._relay.portal.url, lambda: self.sockets)
            self._task = asyncio.create_task(relay.run())
        await appears(self._relay.door(target))
        return target

    def grant(self, workload: str, *, epoch: int = 1) -> RelayTarget:
        """Let the portal say that a workload runs on this node."""
        target = RelayTarget(workload_id=workload, epoch=epoch)
        self._relay.portal.nodes[self.token].append(target)
        return target

    async def close(self) -> None:
        """Kill the agent's end and the workloads."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for server in self._servers:
            server.close()
        await self._portal.close()


async def appears(path: Path, *, is_there: bool = True, within_s: float = 20) -> None:
    """Wait until a file is there, or is gone."""
    await asyncio.to_thread(
        wait_for, lambda: path.exists() is is_there, f"{path.name}: {is_there}", within_s=within_s
    )


async def call(path: Path, data: bytes) -> bytes:
    """Send bytes through a door, end, and return everything that comes back."""
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(data)
    writer.write_eof()
    try:
        return await reader.read()
    finally:
        writer.close()


async def dial(relay: Relay, token: str) -> ClientConnection:
    """Connect to the relay as an agent does, to send what no agent sends."""
    headers = {"Authorization": f"Bearer {token}"}
    return await connect(
        relay.url, additional_headers=headers, compression=None, max_size=MAX_FRAME
    )


async def register(socket: ClientConnection, target: RelayTarget) -> RegisterAnswer:
    """Register a target and return the answer."""
    await socket.send(pack_text(FrameKind.REGISTER, 0, target.model_dump_json()))
    while True:
        frame = unpack(await socket.recv())
        if frame.kind is FrameKind.ANSWER:
            return RegisterAnswer.model_validate_json(frame.text)


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A workload that sends back what it gets, until the end."""
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
    writer.close()
