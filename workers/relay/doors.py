"""Doors: one Unix socket for each target, through which processes of the installation reach it.

They are in a folder that only its owner can enter, and accept the same user and root alone.
"""

import asyncio
import logging
import os
import socket
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from slipway.schemas.relay import DOOR_SUFFIX, RelayTarget
from workers.relay.carry import READ_LIMIT, carry, close
from workers.relay.multiplexer import Multiplexer, StreamReset

log = logging.getLogger(__name__)
_UCRED: Final = struct.Struct("3i")
_ROOT: Final = 0
_BACKLOG: Final = 4096


class Door:
    """The socket of one target. Each connection to it becomes a stream to the node."""

    def __init__(self, folder: Path, target: RelayTarget, multiplexer: Multiplexer) -> None:
        self.target = target
        self._path = folder / target.door
        self._multiplexer = multiplexer
        self._server: asyncio.Server | None = None
        self._carrying: set[asyncio.Task[None]] = set()
        self._inode = 0

    async def open(self) -> None:
        """Start listening. Replaces the socket of an earlier connection. Raises OSError."""
        draft = self._path.with_suffix(".new")
        draft.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(str(draft))
            draft.chmod(0o600)
            listener.listen(_BACKLOG)
            self._inode = draft.stat().st_ino
            draft.rename(self._path)
            self._server = await asyncio.start_unix_server(
                self._accept, sock=listener, limit=READ_LIMIT, backlog=_BACKLOG
            )
        except OSError:
            listener.close()
            raise

    def close(self, reason: str) -> None:
        """Stop listening, and end the connections that lead to the target."""
        if self._server is None:
            return
        with suppress(OSError):
            # A newer connection of the node may have replaced it.
            if self._path.stat().st_ino == self._inode:
                self._path.unlink()
        self._server.close()
        self._server = None
        if self._carrying:
            count = len(self._carrying)
            log.info("%d connections to %s end: %s", count, self.target.workload_id, reason)
        for task in self._carrying:
            task.cancel()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  (start_unix_server makes one)
        self._carrying.add(task)
        try:
            if _peer_uid(writer.get_extra_info("socket")) not in (os.getuid(), _ROOT):
                writer.transport.abort()
                return
            stream = self._multiplexer.open(self.target.name)
            if reason := await carry(stream, reader, writer):
                log.info("a connection to %s ended: %s", self.target.workload_id, reason)
        except StreamReset as error:
            log.info("%s cannot be reached: %s", self.target.workload_id, error)
            writer.transport.abort()
        finally:
            self._carrying.discard(task)
            await close(writer)


def _peer_uid(connection: Any) -> int:
    """Return the user whose process connected, as the kernel noted it at that moment."""
    ucred = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    return int(_UCRED.unpack(ucred)[1])


def clear_doors(folder: Path) -> None:
    """Remove the sockets of a relay that was killed."""
    for suffix in (DOOR_SUFFIX, ".new"):
        for path in folder.glob(f"*{suffix}"):
            path.unlink(missing_ok=True)
