"""The output of a shell as server-sent events. Waiting costs neither a thread nor a connection."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from portal.api.job_stream.authorization import StreamAuthorization, may_still
from portal.api.shells.door import packed
from portal.core.streams import StreamThread
from portal.workloads.models import ShellSession
from portal.workloads.services.shells import (
    door_of,
    end_shell,
    has_task_ended,
    note_followed,
)
from slipway.schemas.accounts import Role, Scope

_THREAD: Final = StreamThread("shells")
_CONNECT_WITHIN_S: Final = 30.0
_AGAIN_S: Final = 0.05
_CHECK_EVERY_S: Final = 10.0
_LOOK_EVERY_S: Final = 0.5
_LINE_LIMIT: Final = 128 << 10
_HELLO: Final = b"retry: 1000\n\n"
_HEARTBEAT: Final = b": still here\n\n"
_UNREACHABLE: Final = "The node did not answer. Its agent may be away, or of an earlier version."


@dataclass(frozen=True)
class ShellStream:
    """A requested stream: the shell, who follows it, and its output from an offset on."""

    shell: ShellSession
    right: StreamAuthorization
    rows: int
    columns: int
    offset: int


class _Lost(Exception):
    """The connection to the shim ended before the shell did."""


class _TaskEnded(Exception):
    """The task has ended, which its node may not have been able to say."""


async def shell_events(stream: ShellStream) -> AsyncIterator[bytes]:
    """Start the shell unless it runs, and yield its output until it ends or access is lost."""
    yield _HELLO
    offset, is_ready = stream.offset, False
    while True:
        try:
            reader, writer = await _connect(stream, offset)
        except TimeoutError:
            yield await _ended(stream, {"reason": "lost", "detail": _UNREACHABLE})
            return
        except _TaskEnded:
            yield await _ended(stream, {"reason": "task_ended"})
            return
        except ValueError as error:
            yield await _ended(stream, {"reason": "not_started", "detail": str(error)})
            return
        if not is_ready:
            is_ready = True
            yield _event("ready", {})
        try:
            async for line in _lines(stream, reader):
                if line is None:
                    yield _HEARTBEAT
                    continue
                offset = int(line["offset"])
                if "end" in line:
                    yield await _ended(stream, line["end"])
                    return
                yield _event("output", {"offset": offset, "output": line["output"]})
                offset += len(line["output"]) * 3 // 4 - line["output"].count("=", -2)
        except PermissionError:
            yield await _ended(stream, {"reason": "forbidden"})
            return
        except (_Lost, OSError, ValueError, KeyError):
            if not await _THREAD.run(lambda: note_followed(stream.shell)):
                yield _event("end", {"reason": "task_ended", "exit_code": None})
                return
            # Each new follower ends the one before it. Two of them must not keep the node busy.
            await asyncio.sleep(_LOOK_EVERY_S)
        finally:
            writer.transport.abort()


async def _connect(
    stream: ShellStream, offset: int
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open the shell and follow it.

    Raises TimeoutError, _TaskEnded, and ValueError if it is refused.
    """
    loop = asyncio.get_running_loop()
    checked_at = loop.time()
    size = {"rows": stream.rows, "columns": stream.columns}
    begin = {"op": "open", "shell": stream.shell.pk, "rank": stream.shell.rank, **size}
    async with asyncio.timeout(_CONNECT_WITHIN_S):
        while True:
            with suppress(OSError, _Lost):
                answer = await _ask(stream.shell, begin)
                if "error" in answer:
                    raise ValueError(str(answer.get("detail"))[:500])
                reader, writer = await _dial(stream.shell)
                follow = {"op": "follow", "shell": stream.shell.pk, "offset": offset}
                writer.write(packed(follow))
                await writer.drain()
                return reader, writer
            if loop.time() - checked_at >= _LOOK_EVERY_S:
                checked_at = loop.time()
                if await _THREAD.run(lambda: has_task_ended(stream.shell)):
                    raise _TaskEnded
            await asyncio.sleep(_AGAIN_S)


async def _dial(shell: ShellSession) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_unix_connection(str(door_of(shell)), limit=_LINE_LIMIT)


async def _ask(shell: ShellSession, request: dict[str, Any]) -> dict[str, Any]:
    reader, writer = await _dial(shell)
    try:
        writer.write(packed(request))
        line = await reader.readline()
    finally:
        writer.transport.abort()
    return _read(line)


async def _lines(
    stream: ShellStream, reader: asyncio.StreamReader
) -> AsyncIterator[dict[str, Any] | None]:
    """Yield the lines of the shim, and None from time to time.

    Raises PermissionError once the person may not follow it any more.
    """
    waiting = asyncio.ensure_future(reader.readline())
    loop = asyncio.get_running_loop()
    checked_at = loop.time()
    try:
        while True:
            await asyncio.wait({waiting}, timeout=_CHECK_EVERY_S)
            if loop.time() - checked_at >= _CHECK_EVERY_S:
                checked_at = loop.time()
                if not await _THREAD.run(lambda: _may_follow(stream)):
                    raise PermissionError
                yield None
            if waiting.done():
                line = _read(waiting.result())
                waiting = asyncio.ensure_future(reader.readline())
                yield line
    finally:
        waiting.cancel()
        with suppress(asyncio.CancelledError, OSError, ValueError):
            await waiting


def _read(line: bytes) -> dict[str, Any]:
    if not line.endswith(b"\n"):
        raise _Lost
    document = json.loads(line)
    if not isinstance(document, dict):
        raise _Lost
    return document


def _may_follow(stream: ShellStream) -> bool:
    is_allowed = may_still(stream.right, role=Role.CONTRIBUTOR, scope=Scope.WORKLOADS_WRITE)
    return is_allowed and note_followed(stream.shell)


async def _ended(stream: ShellStream, end: dict[str, Any]) -> bytes:
    """Record the end of the shell, and return its event."""
    reason, code = str(end.get("reason", "lost")), end.get("exit_code")
    exit_code = code if isinstance(code, int) else None
    await _THREAD.run(lambda: end_shell(shell=stream.shell, reason=reason, exit_code=exit_code))
    detail = str(end.get("detail", ""))
    return _event("end", {"reason": reason, "exit_code": exit_code, "detail": detail})


def _event(name: str, data: dict[str, Any]) -> bytes:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()
