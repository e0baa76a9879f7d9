"""Keeps what is only a copy from filling the disk: snapshots and environments not used for long."""

import asyncio
import logging
import shutil
import sys
import time
from pathlib import Path
from typing import Final

from workers.node_agent.attempts import AttemptTable
from workers.node_agent.conda_archives import CondaArchives
from workers.node_agent.folders import NodeFolders
from workers.node_agent.uv_install import uv_of

log = logging.getLogger(__name__)
_EVERY_S: Final = 600.0
# Entries used this recently may be needed by a task that is being prepared.
_SPARE_S: Final = 3600.0
KEPT_SNAPSHOTS: Final = 100
KEPT_ENVIRONMENTS: Final = 20


async def prune_periodically(folders: NodeFolders, table: AttemptTable) -> None:
    """Remove the least recently used copies, for ever."""
    for folder in folders.outdated:
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
    while True:
        await asyncio.sleep(_EVERY_S)
        used = {attempt.record.environment for attempt in table} - {None}
        in_use = {str(digest).removeprefix("sha256:") for digest in used}
        await asyncio.to_thread(remove_oldest, folders.snapshots, KEPT_SNAPSHOTS, frozenset())
        own = await asyncio.to_thread(folders.project_homes)
        await asyncio.to_thread(remove_least_used, own, KEPT_ENVIRONMENTS, frozenset(in_use))
        in_use.add(folders.project_environments.name)
        removed = await asyncio.to_thread(
            remove_oldest, folders.environments, KEPT_ENVIRONMENTS, frozenset(in_use)
        )
        await asyncio.to_thread(CondaArchives(folders.conda_archives).prune)
        if removed:
            await forget_unpacked(folders)


async def forget_unpacked(folders: NodeFolders) -> None:
    """Empty uv's cache: what removed environments had in it is on the disk for nobody else.

    uv waits until nothing is installed from it. What other environments use stays with them.
    """
    uv = uv_of(sys.executable)
    if uv is not None:
        command = [str(uv), "cache", "clean", "--no-config", "--cache-dir", str(folders.unpacked)]
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
        )
        await process.wait()


def remove_oldest(folder: Path, keep: int, in_use: frozenset[str]) -> list[str]:
    """Remove the least recently used entries of a folder beyond `keep` and return their names."""
    return remove_least_used(list(folder.iterdir()), keep, in_use)


def remove_least_used(paths: list[Path], keep: int, in_use: frozenset[str]) -> list[str]:
    """Remove the least recently used of these paths beyond `keep` and return their names."""
    aged = sorted((_used_at(path), path) for path in paths)
    removed: list[str] = []
    for used_at, path in aged[: max(0, len(aged) - keep)]:
        if path.name in in_use or time.time() - used_at < _SPARE_S:
            continue
        log.info("removing %s, not used since %.0f h", path, (time.time() - used_at) / 3600)
        shutil.rmtree(path, ignore_errors=True)
        removed.append(path.name)
    return removed


def _used_at(path: Path) -> float:
    ready = path / "ready.json"
    return (ready if ready.exists() else path).stat().st_mtime
