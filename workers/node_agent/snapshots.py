"""Code snapshots: fetched once by digest, verified, unpacked with suspicion, copied per task."""

import asyncio
import hashlib
import os
import secrets
import shutil
import stat
import tarfile
from pathlib import Path
from typing import IO, Any, Final

from workers.node_agent.errors import StartError
from workers.node_agent.folders import NodeFolders, checked_digest
from workers.node_agent.portal import Portal
from workers.portal_client.backoff import retry_until_answered
from workers.portal_client.client import PortalRefused

_GIB: Final = 1024**3
MAX_ARCHIVE_BYTES: Final = 2 * _GIB
MAX_UNPACKED_BYTES: Final = 8 * _GIB
MAX_ENTRIES: Final = 100_000
_BLOCK: Final = 1 << 20
# Python 3.11.2 of Debian 12 lacks filters, but the checks below cover what they do for files.
_FILTER: Final[dict[str, Any]] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}


class SnapshotStore:
    """The snapshots on this node's disk, read-only once they are there."""

    def __init__(self, folders: NodeFolders, portal: Portal) -> None:
        self._folder = folders.snapshots
        self._portal = portal
        self._fetching: dict[str, asyncio.Lock] = {}

    async def fetch(self, digest: str) -> Path:
        """The unpacked snapshot, fetched now if it is not there. Raises StartError."""
        checked = checked_digest(digest, "snapshot")
        place = self._folder / checked
        async with self._fetching.setdefault(checked, asyncio.Lock()):
            if not place.exists():
                await self._fetch(digest, checked, place)
        os.utime(place)  # the least recently used is removed first
        return place

    async def _fetch(self, digest: str, checked: str, place: Path) -> None:
        draft = self._folder / f".{checked[:16]}-{secrets.token_hex(4)}"
        archive = draft.with_suffix(".tar")
        try:
            await retry_until_answered(lambda: self._download(digest, checked, archive))
            await asyncio.to_thread(unpack, archive, draft)
            draft.replace(place)
        except PortalRefused as error:
            raise StartError(
                f"The code snapshot could not be fetched from the portal: {error}."
            ) from error
        except OSError as error:
            raise StartError(f"The code snapshot could not be stored: {error}.") from error
        finally:
            archive.unlink(missing_ok=True)
            await asyncio.to_thread(shutil.rmtree, draft, ignore_errors=True)

    async def _download(self, digest: str, checked: str, archive: Path) -> None:
        sha256 = hashlib.sha256()
        size = 0
        with archive.open("wb") as file:
            async with self._portal.snapshot(digest) as blocks:
                async for block in blocks:
                    size += len(block)
                    if size > MAX_ARCHIVE_BYTES:
                        raise StartError(
                            f"The code snapshot is larger than {MAX_ARCHIVE_BYTES} bytes."
                        )
                    sha256.update(block)
                    file.write(block)
        if sha256.hexdigest() != checked:
            raise StartError(
                f"The code snapshot arrived damaged: expected the SHA-256 {checked}, got "
                f"{sha256.hexdigest()}."
            )


def unpack(archive: Path, place: Path) -> None:
    """Unpack an archive of files and folders. Raises StartError for any other entry."""
    place.mkdir(mode=0o700)
    total = entries = 0
    try:
        with archive.open("rb") as file, _open(file) as tar:
            for member in tar:
                entries += 1
                total += member.size
                _check(member, entries, total)
                tar.extract(_sanitized_member(member), place, **_FILTER)
    except (tarfile.TarError, EOFError) as error:
        raise StartError(f"The code snapshot cannot be unpacked: {error}.") from error


def _sanitized_member(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Let a checked member be ours, with no rights but the usual ones."""
    member.uid, member.gid, member.uname, member.gname = os.getuid(), os.getgid(), "", ""
    member.mode = (member.mode & 0o755) | (0o700 if member.isdir() else 0o600)
    return member


def _open(file: IO[bytes]) -> tarfile.TarFile:
    # A stream is read once from start to end, so no member can be read twice or appear smaller.
    return tarfile.open(fileobj=file, mode="r|*", bufsize=_BLOCK)


def _check(member: tarfile.TarInfo, entries: int, total: int) -> None:
    if not (member.isreg() or member.isdir()):
        raise StartError(
            f"The code snapshot contains {member.name[:100]!r}, which is neither a file nor a "
            "folder."
        )
    if member.name.startswith("/") or ".." in member.name.split("/"):
        raise StartError(
            f"The code snapshot contains {member.name[:100]!r}, which points outside it."
        )
    if entries > MAX_ENTRIES or total > MAX_UNPACKED_BYTES:
        raise StartError(
            f"The code snapshot unpacks to more than {MAX_ENTRIES} files or "
            f"{MAX_UNPACKED_BYTES // _GIB} GiB."
        )


def copy_fresh(snapshot: Path, work: Path) -> None:
    """Copy a snapshot for a task, which may change the copy. Raises OSError."""
    shutil.copytree(snapshot, work, dirs_exist_ok=True)
    for folder, _, files in os.walk(work):
        for path in (Path(folder), *(Path(folder) / name for name in files)):
            path.chmod(stat.S_IMODE(path.stat().st_mode) | stat.S_IRUSR | stat.S_IWUSR)
