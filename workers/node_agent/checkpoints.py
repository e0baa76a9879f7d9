"""Brings the checkpoint a job goes on from to this node, where it has none as new as that."""

import asyncio
import errno
import hashlib
import logging
import os
import secrets
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from slipway.schemas.agent import StoredCheckpoint, TaskKey
from slipway.schemas.checkpoints import MAX_FILES, BadCheckpoint, Receiver, folder_name
from workers.node_agent.checkpoint_reader import PLACE, has_all_files, opened, steps_in
from workers.node_agent.errors import StaleEpoch, StartError
from workers.node_agent.folders import NodeFolders
from workers.node_agent.ownership import chown_tree
from workers.node_agent.portal import Portal
from workers.portal_client.backoff import Backoff
from workers.portal_client.client import PortalRefused, PortalUnreachable

log = logging.getLogger(__name__)
_FAULTS: Final = 4
_DRAFT: Final = ".fetch-"
_ABANDONED_S: Final = 24 * 3600.0


class CheckpointStore:
    """Fetches checkpoints from the portal into the folders of jobs."""

    def __init__(self, folders: NodeFolders, portal: Portal) -> None:
        self._folders = folders
        self._portal = portal

    async def ensure(
        self,
        key: TaskKey,
        stored_checkpoint: StoredCheckpoint,
        persistent: Path,
        say: Callable[[str], None],
    ) -> None:
        """Fetch that checkpoint into the job's folder unless it or a newer one is there.

        Raises StartError, OSError.
        """
        if await asyncio.to_thread(_has, persistent, stored_checkpoint.step):
            return
        await asyncio.to_thread(_clear_abandoned, persistent.parent)
        say(f"The checkpoint of step {stored_checkpoint.step} is being fetched from the store.")
        await self._fetch(key, stored_checkpoint, persistent)
        say(
            f"It continues from the checkpoint of step {stored_checkpoint.step}, fetched from "
            "the store."
        )

    async def _fetch(
        self, key: TaskKey, stored_checkpoint: StoredCheckpoint, persistent: Path
    ) -> None:
        backoff = Backoff()
        faults: list[str] = []
        while len(faults) < _FAULTS:
            # Next to the job's folder: not accessible to tasks, and on the same disk.
            draft = persistent.parent / f"{_DRAFT}{secrets.token_hex(8)}"
            arrival = _CheckpointDownload(stored_checkpoint, draft)
            try:
                await self._download(key, stored_checkpoint, arrival)
                await asyncio.to_thread(
                    _install_checkpoint, draft, persistent, stored_checkpoint.step
                )
                return
            except BadCheckpoint as error:
                faults.append(str(error))
            except PortalUnreachable as error:
                if arrival.size_bytes:
                    faults.append(f"the transfer was interrupted after {arrival.size_bytes} bytes")
                log.info("the checkpoint of step %d waits: %s", stored_checkpoint.step, error)
            except (PortalRefused, StaleEpoch) as error:
                raise StartError(_fetch_failure_message(stored_checkpoint, str(error))) from error
            finally:
                arrival.close()
                await asyncio.to_thread(shutil.rmtree, draft, ignore_errors=True)
            await asyncio.sleep(backoff.pause_s())
        raise StartError(
            _fetch_failure_message(stored_checkpoint, f"{faults[-1]}, tried {_FAULTS} times")
        )

    async def _download(
        self, key: TaskKey, stored_checkpoint: StoredCheckpoint, arrival: "_CheckpointDownload"
    ) -> None:
        async with self._portal.checkpoint(key, stored_checkpoint.step) as blocks:
            async for block in blocks:
                await asyncio.to_thread(arrival.feed, block)
        await asyncio.to_thread(arrival.finish)


def _fetch_failure_message(stored_checkpoint: StoredCheckpoint, fault: str) -> str:
    return (
        f"The checkpoint of step {stored_checkpoint.step} could not be fetched from the store "
        f"({fault}). The job was not started without it, because that would repeat finished "
        "steps."
    )


class _CheckpointDownload:
    """Writes what arrives to a draft folder, and checks it."""

    def __init__(self, checkpoint: StoredCheckpoint, draft: Path) -> None:
        self._checkpoint = checkpoint
        self._draft = draft
        self._receiver = Receiver(
            checkpoint.step, limit_bytes=checkpoint.size_bytes, write=self._write
        )
        self._digest = hashlib.sha256()
        self._name = ""
        self._file = -1
        self._files = 0
        self.size_bytes = 0

    def feed(self, block: bytes) -> None:
        """Process a block. Raises BadCheckpoint, OSError."""
        if not self.size_bytes:
            self._draft.mkdir(mode=0o700)
        self.size_bytes += len(block)
        if self.size_bytes > self._checkpoint.size_bytes:
            raise BadCheckpoint("it is larger than announced")
        self._digest.update(block)
        self._receiver.feed(block)

    def finish(self) -> None:
        """Sync to disk. Raises BadCheckpoint unless the checkpoint is complete and correct."""
        self._receiver.finish()
        if self._digest.hexdigest() != self._checkpoint.digest:
            raise BadCheckpoint("it arrived damaged")
        self.close(sync=True)
        with opened(self._draft) as folder:
            os.fsync(folder)

    def close(self, *, sync: bool = False) -> None:
        """Close the file that is being written."""
        if self._file >= 0:
            if sync:
                os.fsync(self._file)
            os.close(self._file)
            self._file = -1

    def _write(self, name: str, piece: bytes) -> None:
        if name != self._name:
            self.close(sync=True)
            self._files += 1
            if self._files > MAX_FILES + 1:
                raise BadCheckpoint("it has too many files")
            self._name = name
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            self._file = os.open(self._draft / name, flags, 0o600)
        view = memoryview(piece)
        while view:
            view = view[os.write(self._file, view) :]


def _has(persistent: Path, step: int) -> bool:
    """Return whether a checkpoint of that step or a later one exists."""
    return any(
        number >= step and has_all_files(persistent, number) for number in steps_in(persistent)
    )


def _install_checkpoint(draft: Path, persistent: Path, step: int) -> None:
    """Move a fetched checkpoint into place and move a damaged one aside."""
    with opened(persistent) as kept:
        owner = os.fstat(kept)
        # Not accessible to tasks yet: later user code could insert links.
        chown_tree(draft, owner.st_uid, owner.st_gid)
        made = False
        with suppress(FileExistsError):
            os.mkdir(PLACE, mode=0o700, dir_fd=kept)
            made = True
        try:
            with opened(PLACE, inside=kept) as place:
                if made:
                    os.fchown(place, owner.st_uid, owner.st_gid)
                name = folder_name(step)
                with suppress(FileNotFoundError):
                    aside = f"draft-{secrets.token_hex(8)}"
                    os.rename(name, aside, src_dir_fd=place, dst_dir_fd=place)
                os.rename(draft, name, dst_dir_fd=place)
                os.fsync(place)
        except OSError as error:
            if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                raise
            raise StartError(
                f"The checkpoint of step {step} cannot be stored: {PLACE} in the folder of the "
                "job is not a folder."
            ) from error


def _clear_abandoned(folder: Path) -> None:
    """Remove what an agent left half fetched."""
    for draft in folder.glob(f"{_DRAFT}*"):
        with suppress(OSError):
            if time.time() - draft.lstat().st_mtime > _ABANDONED_S:
                shutil.rmtree(draft, ignore_errors=True)
