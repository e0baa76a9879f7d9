"""The agent's end of the relay: serves the workloads of this node over one outward connection.

The nodes of pools connect for their servers, and all nodes for the shells of people in tasks. Only
sockets that shims of this agent listen on are reached, by their own paths. Neither the relay nor
user code can name an address or another path. The socket of a container is in a folder that user
code may be able to write, so what is connected is the socket that was checked, and no link.
"""

import asyncio
import logging
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pydantic
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidHandshake, InvalidURI

from slipway.schemas.relay import RELAY_PATH, DashboardTarget, RelayGrant, RelayTarget, ShellTarget
from workers.node_agent.attempts import Attempt, AttemptTable
from workers.node_agent.backends.base import Backend
from workers.node_agent.folders import NodeFolders
from workers.node_agent.portal import Portal
from workers.portal_client.backoff import Backoff
from workers.portal_client.client import PortalRefused, PortalUnreachable
from workers.relay.carry import carry, connect_unix
from workers.relay.frames import (
    MAX_FRAME,
    Frame,
    FrameKind,
    ProtocolError,
    RegisterAnswer,
    pack_text,
)
from workers.relay.multiplexer import Multiplexer, Stream

log = logging.getLogger(__name__)
_LOOK_EVERY_S: Final = 0.1
_AGAIN_S: Final = 2.0
_HANDSHAKE_S: Final = 10.0
_CLOSE_S: Final = 1.0
_PING_S: Final = 20.0
_LONGEST_PAUSE_S: Final = 5.0
_WRITE_LIMIT: Final = 256 << 10
# Returns targets and the sockets they listen on, by the name of the door.
Served = Callable[[], dict[str, tuple[RelayTarget, Path]]]
_LOST: Final = "The connection to the relay was lost."


class NodeRelay:
    """Keeps a connection to the relay while this node serves anything."""

    def __init__(self, portal: Portal, url: str, served: Served) -> None:
        """`url` is the portal's, from which that of the relay is derived."""
        self._portal = portal
        self._url = url
        self._served = served

    async def run(self) -> None:
        """Connect whenever there is something to serve. Never raises for a relay that is away."""
        backoff = Backoff(longest_s=_LONGEST_PAUSE_S)
        while True:
            if not self._served():
                await asyncio.sleep(_LOOK_EVERY_S)
                continue
            try:
                grant = await self._portal.relay()
                async with self._connect(relay_url(self._url, grant)) as socket:
                    log.info("connected to the relay")
                    backoff.reset()
                    reason = await RelaySession(socket, self._served).run()
            except (PortalUnreachable, PortalRefused, InvalidHandshake, InvalidURI) as error:
                reason = str(error)
            except (OSError, TimeoutError) as error:
                reason = str(error) or "it does not respond"
            if self._served():
                log.info("no connection to the relay: %s", reason)
            await asyncio.sleep(backoff.pause_s())

    def _connect(self, url: str) -> connect:
        return connect(
            url,
            additional_headers={"Authorization": f"Bearer {self._portal.node_token}"},
            compression=None,
            max_size=MAX_FRAME,
            write_limit=_WRITE_LIMIT,
            open_timeout=_HANDSHAKE_S,
            close_timeout=_CLOSE_S,
            ping_interval=_PING_S,
            ping_timeout=_PING_S,
        )


class RelaySession:
    """One connection to the relay, from its handshake to its end."""

    def __init__(self, socket: ClientConnection, served: Served) -> None:
        self._served = served
        self._paths: dict[str, Path] = {}
        self._retry_at: dict[str, float] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._multiplexer = Multiplexer(socket, accept=self._accept, on_message=self._on_message)

    async def run(self) -> str:
        """Serve until the connection ends. Return the reason."""
        follower = asyncio.create_task(self._follow())
        try:
            return await self._multiplexer.run(_LOST)
        finally:
            follower.cancel()
            for task in list(self._tasks):
                task.cancel()

    async def _follow(self) -> None:
        """Register what begins to listen, and unregister what has ended."""
        loop = asyncio.get_running_loop()
        while True:
            served = self._served()
            for name in [name for name in self._paths if name not in served]:
                del self._paths[name]
                self._retry_at.pop(name, None)
                self._multiplexer.post(pack_text(FrameKind.UNREGISTER, 0, name))
            for name, (target, path) in served.items():
                is_due = loop.time() >= self._retry_at.get(name, float("inf"))
                if name not in self._paths or is_due:
                    self._paths[name] = path
                    self._retry_at.pop(name, None)
                    message = pack_text(FrameKind.REGISTER, 0, target.model_dump_json())
                    self._multiplexer.post(message)
            await asyncio.sleep(_LOOK_EVERY_S)

    def _on_message(self, frame: Frame) -> None:
        if frame.kind is not FrameKind.ANSWER:
            raise ProtocolError(f"a {frame.kind.name} frame does not belong to stream 0")
        try:
            answer = RegisterAnswer.model_validate_json(frame.text)
        except pydantic.ValidationError:
            raise ProtocolError("an ANSWER frame holds no answer") from None
        if answer.reason:
            log.warning("a workload cannot be reached through the relay: %s", answer.reason)
        if answer.reason and not answer.is_final:
            loop = asyncio.get_running_loop()
            self._retry_at[answer.name] = loop.time() + _AGAIN_S

    def _accept(self, stream: Stream) -> None:
        task = asyncio.create_task(self._serve(stream))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, stream: Stream) -> None:
        path = self._paths.get(stream.name)
        descriptor = None if path is None else open_own_socket(path)
        if descriptor is None:
            stream.reset("No such workload listens on this node.")
            return
        try:
            # The very socket that was checked, whatever has the path by now.
            reader, writer = await connect_unix(Path(f"/proc/self/fd/{descriptor}"))
        except OSError as error:
            stream.reset(f"The workload does not listen: {error.strerror}.")
            return
        finally:
            os.close(descriptor)
        await carry(stream, reader, writer)


def served_by(table: AttemptTable, folders: NodeFolders, backends: Mapping[str, Backend]) -> Served:
    """Return the function that lists what runs on a node and listens."""

    def served() -> dict[str, tuple[RelayTarget, Path]]:
        return {
            target.name: (target, path)
            for attempt in table
            if not attempt.finished
            for target, path in _sockets_of(attempt, folders, backends)
            if is_own_socket(path)
        }

    return served


def _sockets_of(
    attempt: Attempt, folders: NodeFolders, backends: Mapping[str, Backend]
) -> Iterator[tuple[RelayTarget, Path]]:
    """Yield the sockets that a task may have, of which shells and dashboards were opened."""
    record, handle = attempt.record, attempt.handle
    workload_id, epoch, task_id = record.workload_id, record.epoch, record.task_id
    yield RelayTarget(workload_id=workload_id, epoch=epoch), folders.listener(handle)
    backend = backends.get(record.backend)
    if attempt.has_shells and backend is not None:
        shell = ShellTarget(workload_id=workload_id, epoch=epoch, task_id=task_id)
        yield shell, backend.shell_socket(handle)
    if attempt.has_dashboard:
        dashboard = DashboardTarget(workload_id=workload_id, epoch=epoch, dashboard_of=task_id)
        yield dashboard, folders.dashboard(handle)


def relay_url(portal_url: str, grant: RelayGrant) -> str:
    """Return the address of the relay, for an agent that reaches the portal at `portal_url`."""
    if grant.url:
        parts = urlsplit(grant.url)
        scheme = "wss" if parts.scheme in ("https", "wss") else "ws"
        return f"{scheme}://{parts.netloc}{parts.path.rstrip('/')}{RELAY_PATH}"
    parts = urlsplit(portal_url)
    if parts.scheme == "https":
        # A token must not travel in the clear: the proxy in front of the portal has the path.
        return f"wss://{parts.netloc}{RELAY_PATH}"
    host = parts.hostname or ""
    return f"ws://{f'[{host}]' if ':' in host else host}:{grant.port}{RELAY_PATH}"


def is_own_socket(path: Path) -> bool:
    """Return whether a path is a socket that its shim has made, and no link to another."""
    descriptor = open_own_socket(path)
    if descriptor is None:
        return False
    os.close(descriptor)
    return True


def open_own_socket(path: Path) -> int | None:
    """Return a descriptor that names the socket of a shim, or None if the path is no such socket.

    It belongs to this user, or to the owner of its folder: a shim in a container runs as the user
    of its project. Code of that user may put something else in its place at any time.
    """
    try:
        owners = (os.getuid(), path.parent.lstat().st_uid)
        descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    status = os.fstat(descriptor)
    if stat.S_ISSOCK(status.st_mode) and status.st_uid in owners:
        return descriptor
    os.close(descriptor)
    return None
