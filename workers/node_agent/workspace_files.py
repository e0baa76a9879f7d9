"""Files of workspaces for people in the portal: one confined process for each request.

The folder and all that is in it belong to user code. So this process opens nothing there; it
starts `workers.launcher.workspace_program` as the user of the project, inside the boundary of the
node's isolation level, with that folder alone and without a network. Only a move between the shared
and the personal folder has both. The same works whether a notebook server runs or not.
"""

import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import pydantic

from slipway.schemas.workspace_files import FileAnswer, FileReport, FileRequest
from workers.launcher.confinement import Confinement
from workers.launcher.mounts import View
from workers.node_agent.disk_limits import DiskLimits
from workers.node_agent.errors import StartError
from workers.node_agent.folders import NodeFolders
from workers.node_agent.isolation import Isolation, code_places
from workers.node_agent.portal import Portal
from workers.node_agent.warm_pool import boot, confined_command
from workers.portal_client.client import PortalRefused, PortalUnreachable

log = logging.getLogger(__name__)
_AT_ONCE: Final = 4
_PIECE: Final = 4 << 20
_MOST_ANSWER: Final = 8 << 20
_ANSWER_WITHIN_S: Final = 30.0
# Deleting a large tree, measuring a folder of a million files, or waiting for a slow upload.
_CHANGE_WITHIN_S: Final = 600.0
_END_WITHIN_S: Final = 5.0


class WorkspaceFiles:
    """Serves the file requests that the portal lists for this node."""

    def __init__(
        self, portal: Portal, folders: NodeFolders, isolation: Isolation, disk: DiskLimits
    ) -> None:
        self._portal = portal
        self._folders = folders
        self._isolation = isolation
        self._disk = disk
        self._limit = asyncio.Semaphore(_AT_ONCE)
        self._running: dict[str, asyncio.Task[None]] = {}

    def accept(self, requests: Iterable[FileRequest]) -> None:
        """Start serving the requests that are new."""
        for request in requests:
            if request.id not in self._running:
                task = asyncio.create_task(self._serve(request))
                self._running[request.id] = task
                task.add_done_callback(partial(self._forget, request.id))

    def _forget(self, request_id: str, _: asyncio.Task[None]) -> None:
        self._running.pop(request_id, None)

    async def _serve(self, request: FileRequest) -> None:
        async with self._limit:
            try:
                await self._portal.claim_file_request(request.id)
                answer = await self._answer(request)
                report = FileReport(state="ended", answer=answer)
                await self._portal.report_file_request(request.id, report)
            except (PortalRefused, PortalUnreachable) as error:
                log.info("nobody waits for the file request %s: %s", request.id, error)
            except Exception:
                log.exception("the file request %s failed", request.id)

    async def _answer(self, request: FileRequest) -> FileAnswer:
        try:
            folders = [self._folders.persistent_of(key) for key in _keys(request)]
            command, user = await asyncio.to_thread(self._command, request.folder, folders)
        except StartError as error:
            return _failure(str(error))
        process = await asyncio.create_subprocess_exec(
            *command,
            env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "PYTHONUTF8": "1"},
            cwd="/",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
            limit=_MOST_ANSWER,
            user=user,
            group=user,
            extra_groups=None if user is None else [],
        )
        try:
            return await self._converse(request, process)
        except TimeoutError:
            return _failure("The disk of the node did not respond in time.")
        except (pydantic.ValidationError, ValueError, OSError) as error:
            log.warning("the process of a file request failed: %s", error)
            return _failure("The files could not be read.")
        finally:
            await _end(process, at_once=request.operation in ("list", "read"))

    def _command(self, key: str, folders: list[Path]) -> tuple[list[str], int | None]:
        """Return the command of the process, and the user to start it as."""
        python = os.path.realpath(sys.executable)
        program = boot("workspace_program", isolated=True)
        paths = tuple(map(str, folders))
        command = [*(python, "-I", "-S", "-c", program, str(self._folders.code)), *paths]
        user = self._isolation.user_of(key.partition("/")[0])
        level = self._isolation.level
        if level == "none" or not all(folder.is_dir() for folder in folders):
            return command, None
        readable = (*code_places(self._folders), sys.base_prefix)
        if level == "namespaces":
            view = View(
                writable=paths,
                readable=readable,
                offline="network" in self._isolation.features,
            )
            return self._isolation.command(self._folders.code, view, command, user=user), None
        confinement = Confinement(paths, readable)
        command = confined_command(self._folders.code, confinement, command)
        return command, user.uid if user is not None else None

    async def _converse(
        self, request: FileRequest, process: asyncio.subprocess.Process
    ) -> FileAnswer:
        assert process.stdin is not None  # noqa: S101 - a pipe, see above
        assert process.stdout is not None  # noqa: S101
        is_change = request.operation not in ("list", "read")
        limits = {
            "reserve_bytes": self._disk.reserve_bytes,
            "folder_limit_bytes": self._disk.task_bytes,
        }
        line = json.dumps(request.model_dump() | limits).encode() + b"\n"
        process.stdin.write(line)
        async with asyncio.timeout(_CHANGE_WITHIN_S if is_change else _ANSWER_WITHIN_S):
            if request.operation == "write":
                await self._feed(request, process.stdin)
            process.stdin.close()
            answer = FileAnswer.model_validate_json(await process.stdout.readline())
        if request.operation == "read" and answer.ok:
            await self._send(request, answer, process)
        return answer

    async def _feed(self, request: FileRequest, target: asyncio.StreamWriter) -> None:
        """Pass an upload on. A process that has refused it closes its end."""
        with suppress(ConnectionError):
            async with self._portal.file_content(request.id) as blocks:
                async for block in blocks:
                    target.write(block)
                    await target.drain()

    async def _send(
        self, request: FileRequest, answer: FileAnswer, process: asyncio.subprocess.Process
    ) -> None:
        """Send the bytes of a file or zip. Raises OSError if they are not complete."""
        assert process.stdout is not None  # noqa: S101
        report = FileReport(state="streaming", answer=answer)
        await self._portal.report_file_request(request.id, report)
        offset = 0
        while True:
            async with asyncio.timeout(_CHANGE_WITHIN_S):
                piece = await _piece(process.stdout)
            if not piece:
                break
            await self._portal.put_file_content(request.id, offset, piece)
            offset += len(piece)
        if await process.wait():
            raise OSError("the process ended before the file did")
        if answer.size_bytes is not None and offset != answer.size_bytes:
            raise OSError("the file changed while it was read")


def _keys(request: FileRequest) -> tuple[str, ...]:
    """Return the keys of the folders that a request is about. Raises StartError."""
    if not request.target_folder:
        return (request.folder,)
    if request.target_folder.partition("/")[0] != request.folder.partition("/")[0]:
        raise StartError("files are moved within one project only")
    return (request.folder, request.target_folder)


async def _piece(source: asyncio.StreamReader) -> bytes:
    """Return the next bytes, at most `_PIECE`, empty at the end."""
    blocks = []
    size = 0
    while size < _PIECE and (block := await source.read(_PIECE - size)):
        blocks.append(block)
        size += len(block)
    return b"".join(blocks)


async def _end(process: asyncio.subprocess.Process, *, at_once: bool) -> None:
    """End a process. Without input, one that changes files removes what it has not finished."""
    if process.stdin is not None:
        process.stdin.close()
    if not at_once:
        with suppress(TimeoutError):
            async with asyncio.timeout(_END_WITHIN_S):
                await process.wait()
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


def _failure(detail: str) -> FileAnswer:
    return FileAnswer(ok=False, code="failed", detail=detail[:500])
