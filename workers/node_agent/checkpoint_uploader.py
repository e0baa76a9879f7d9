"""Copies the newest checkpoint of each job here to the portal, so that it outlives this node.

Runs in the background for jobs of one task: one upload at a time, only the newest checkpoint, in a
thread that yields to training. Interrupted uploads are repeated. A newer checkpoint replaces a
waiting one.
"""

import asyncio
import logging
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final, TypeVar

from slipway.schemas.checkpoints import BadCheckpoint, contents_of, folder_name, size_of_tar
from workers.node_agent.attempts import Attempt, AttemptTable
from workers.node_agent.checkpoint_reader import (
    manifest_in,
    open_checkpoint_folder,
    opened,
    packed,
    steps_in,
)
from workers.node_agent.errors import StaleEpoch, StartError
from workers.node_agent.folders import NodeFolders
from workers.node_agent.portal import Portal
from workers.portal_client.backoff import Backoff
from workers.portal_client.client import PortalRefused, PortalUnreachable

Result = TypeVar("Result")
log = logging.getLogger(__name__)
_LOOK_EVERY_S: Final = 0.5
_NICE: Final = 10
# After each copy, pause for as long as it took, to use a busy disk at most half of the time.
_LONGEST_REST_S: Final = 60.0


class CheckpointUploader:
    """Looks which checkpoints are new and sends them."""

    def __init__(self, portal: Portal, table: AttemptTable, folders: NodeFolders) -> None:
        self._portal = portal
        self._table = table
        self._folders = folders
        self._backoff = Backoff(first_s=0.5, longest_s=30.0)
        self._thread = ThreadPoolExecutor(1, "checkpoints", initializer=_lower_priority)
        # By attempt: the step up to which there is nothing to send.
        self._settled_steps: dict[str, int] = {}

    async def run(self) -> None:
        """Copy for ever."""
        while True:
            attempts = list(self._table)
            known = {attempt.handle for attempt in attempts}
            self._settled_steps = {
                name: step for name, step in self._settled_steps.items() if name in known
            }
            for attempt in attempts:
                step = await self._next_step(attempt)
                if step is not None:
                    await self._copy(attempt, step)
            await asyncio.sleep(_LOOK_EVERY_S)

    async def _next_step(self, attempt: Attempt) -> int | None:
        if not attempt.record.copy_limit_bytes or attempt.stale:
            return None
        try:
            persistent = self._folders.persistent_of(attempt.record.persistent_key)
        except StartError:
            return None
        newest = next(iter(await self._in_thread(steps_in, persistent)), None)
        return newest if newest is not None and newest > self._settled_step(attempt) else None

    def _settled_step(self, attempt: Attempt) -> int:
        """The step up to which the portal has, or does not want, what is here."""
        spec = attempt.desired.spec if attempt.desired is not None else None
        stored = spec.checkpoint.step if spec is not None and spec.checkpoint is not None else -1
        return max(stored, self._settled_steps.get(attempt.handle, -1))

    async def _copy(self, attempt: Attempt, step: int) -> None:
        begun_s = time.monotonic()
        try:
            await self._send(attempt, step)
        except PortalUnreachable as error:
            log.info("the checkpoint of step %d waits: %s", step, error)
            await asyncio.sleep(self._backoff.pause_s())
            return
        except StaleEpoch:
            attempt.stale = True
            attempt.notifier.notify()
        except (PortalRefused, BadCheckpoint, OSError) as error:
            # Removed by its retention rule, most often: then there is a newer one.
            log.warning("the checkpoint of step %d was not copied: %s", step, error)
        else:
            log.info("the checkpoint of step %d of %s is in the store", step, attempt.handle)
        self._backoff.reset()
        self._settled_steps[attempt.handle] = step
        await asyncio.sleep(min(_LONGEST_REST_S, time.monotonic() - begun_s))

    async def _send(self, attempt: Attempt, step: int) -> None:
        persistent = self._folders.persistent_of(attempt.record.persistent_key)
        with (
            open_checkpoint_folder(persistent) as place,
            opened(folder_name(step), inside=place) as folder,
        ):
            manifest = await self._in_thread(manifest_in, folder)
            contents = contents_of(manifest)
            if contents.step != step:
                raise BadCheckpoint(f"it is of step {contents.step}")
            if contents.size_bytes > attempt.record.copy_limit_bytes:
                raise BadCheckpoint(f"{contents.size_bytes} bytes exceed the copy limit")
            await self._portal.put_checkpoint(
                attempt.key,
                step,
                size_of_tar(manifest, contents),
                self._pieces(packed(folder, manifest, contents)),
            )

    async def _in_thread(self, work: Callable[..., Result], *arguments: Any) -> Result:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, work, *arguments)

    async def _pieces(self, pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
        while (piece := await self._in_thread(next, pieces, None)) is not None:
            if piece:
                yield piece


def _lower_priority() -> None:
    """Let everything else on the machine go first."""
    with suppress(OSError):
        nice = max(_NICE, os.getpriority(os.PRIO_PROCESS, 0))
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), nice)
