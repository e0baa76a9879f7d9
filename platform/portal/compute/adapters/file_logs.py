"""Logs as files below one folder, shared by all processes of this machine."""

import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

_KEY = re.compile(r"\A[A-Za-z0-9_-][A-Za-z0-9._-]*(?:/[A-Za-z0-9_-][A-Za-z0-9._-]*)*\Z")
_PIECE_BYTES = 256 * 1024


class FileLogs:
    """A `LogStore` on disk. Nothing is synced: a power failure may lose a log's last seconds."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def append(self, key: str, offset: int, data: bytes) -> int:
        """Append `data` at `offset` and return the size. A file lock admits one writer."""
        path = self._path(key)
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        except FileNotFoundError:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            size = os.fstat(descriptor).st_size
            fresh = memoryview(data)[max(0, size - offset) :] if offset <= size else memoryview(b"")
            while fresh:
                written = os.pwrite(descriptor, fresh, size)
                size += written
                fresh = fresh[written:]
            return size
        finally:
            os.close(descriptor)

    def size(self, key: str) -> int:
        """Return the size in bytes, 0 for a log that does not exist."""
        try:
            return self._path(key).stat().st_size
        except FileNotFoundError:
            return 0

    def read(self, key: str, start: int, length: int) -> Iterator[bytes]:
        """Yield a range in pieces of at most 256 KiB."""
        try:
            file = self._path(key).open("rb")
        except FileNotFoundError:
            return
        with file:
            file.seek(start)
            while length > 0 and (piece := file.read(min(length, _PIECE_BYTES))):
                length -= len(piece)
                yield piece

    def delete(self, prefix: str) -> None:
        """Remove a log, or a folder of logs."""
        path = self._path(prefix)
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        if not _KEY.match(key):
            raise ValueError(f"not a key of a log: {key!r}")
        return self._root / key
