"""Bytes in a folder of this machine, or of a file system that several machines mount."""

import os
import secrets
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from portal.storage.adapters.fsspec_store import FsspecStore, checked
from portal.storage.digests import Intake
from portal.storage.ports import (
    CHUNK_BYTES,
    BytesMissing,
    CleanupResult,
    StoredBytes,
    StoredObject,
    UploadDeclaration,
    digest_in,
    new_key,
)

_SHARDS = tuple(f"{number:02x}" for number in range(256))


class DiskStore(FsspecStore):
    """`file://`: drafts are written beside the objects, synced, then renamed into their place."""

    def __init__(self, root: str, options: dict[str, Any]) -> None:
        super().__init__("file", root, options)

    def put(
        self, chunks: Iterable[bytes], *, promised: UploadDeclaration, limit_bytes: int
    ) -> StoredBytes:
        """See BlobStore."""
        intake = Intake(promised, limit_bytes)
        draft = Path(self._root, "drafts", secrets.token_hex(16))
        with self.outages():
            draft.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = self._fs.open(str(draft), "wb")
        try:
            with file:
                for chunk in intake.passing(chunks):
                    with self.outages():
                        file.write(chunk)
                with self.outages():
                    file.flush()
                    os.fsync(file.fileno())
            key = new_key(intake.sha256)
            with self.outages():
                self._publish(draft, Path(self._path(key)))
        finally:
            draft.unlink(missing_ok=True)
        return StoredBytes(key, intake.sha256, intake.size_bytes)

    def _publish(self, draft: Path, place: Path) -> None:
        """Rename the draft into its place so that a power cut finds all of it, or none."""
        shard, objects = place.parent, place.parent.parent
        is_new_shard = not shard.exists()
        shard.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft.rename(place)
        for folder in (shard, objects, Path(self._root)) if is_new_shard else (shard,):
            _sync_folder(folder)

    def read(self, key: str, *, start: int, length: int) -> Iterator[bytes]:
        """See BlobStore."""
        path = self._path(key)
        with self.outages():
            try:
                file = self._fs.open(path, "rb")
            except FileNotFoundError:
                raise BytesMissing(key) from None
        with file:
            with self.outages():
                file.seek(start)
            while length > 0:
                with self.outages():
                    chunk: bytes = file.read(min(length, CHUNK_BYTES))
                if not chunk:
                    return
                length -= len(chunk)
                yield chunk

    def delete(self, key: str) -> int:
        """See BlobStore."""
        path = self._path(key)
        with self.outages():
            try:
                size_bytes = int(self._fs.info(path)["size"])
                self._fs.rm_file(path)
            except FileNotFoundError:
                return 0
        return size_bytes

    def _path(self, key: str) -> str:
        return f"{self._root}/{checked(key)}"

    def entries(self, *, digest_prefix: str) -> Iterator[StoredObject]:
        """See BlobStore."""
        for shard in (shard for shard in _SHARDS if shard.startswith(digest_prefix)):
            for info in self._listing(f"sha256/{shard}"):
                key = str(info["name"]).removeprefix(f"{self._root}/")
                if digest_in(key) is not None:
                    yield StoredObject(key, int(info["size"]), _modified_at(info))

    def _listing(self, folder: str) -> list[dict[str, Any]]:
        with self.outages():
            try:
                rows: list[dict[str, Any]] = self._fs.ls(f"{self._root}/{folder}", detail=True)
            except FileNotFoundError:
                return []
        return [info for info in rows if info["type"] == "file"]

    def clear_drafts(self, *, before: datetime) -> CleanupResult:
        """See BlobStore."""
        cleared = CleanupResult()
        for info in self._listing("drafts"):
            if _modified_at(info) < before:
                with self.outages():
                    Path(info["name"]).unlink(missing_ok=True)
                cleared += CleanupResult(1, int(info["size"]))
        return cleared


def _modified_at(info: dict[str, Any]) -> datetime:
    return datetime.fromtimestamp(info["mtime"], UTC)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
