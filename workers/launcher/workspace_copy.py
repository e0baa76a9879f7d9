"""Copies a file or folder to another folder, for a move that the kernel cannot do by a rename.

Two folders that are mounted apart, as the shared and the personal one are in a confined process,
are two file systems for a rename. User code may change both meanwhile: everything is opened by
descriptor, no link is followed, and at most one path of at most 64 levels is open at a time.
A link is copied as a link. A pipe, socket or device cannot be copied, so it refuses the move.
Standard library only.
"""

import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_BLOCK: Final = 1 << 20
_MOST_ENTRIES: Final = 200_000
_MOST_LEVELS: Final = 64
_PERMISSIONS: Final = 0o777


class FileError(Exception):
    """The request cannot be fulfilled. `code` is one of `FileAnswer`."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code


@dataclass
class _Level:
    """A folder that is open at both ends. `path` begins with the name of the moved folder."""

    path: str
    source: int
    target: int
    names: Iterator[bytes]

    def close(self) -> None:
        os.close(self.source)
        os.close(self.target)


@dataclass
class TreeCopy:
    """Copies one entry. `limit_bytes` is the space that the copy may use."""

    limit_bytes: int
    _entries: int = 0

    def copy(self, source: int, name: bytes, target: int, new_name: bytes) -> tuple[int, int]:
        """Copy an entry of one open folder into another, and return its device and inode.

        Raises FileError and OSError, and may leave a part of the copy then.
        """
        levels: list[_Level] = []
        try:
            identity, level = self._copy(source, name, target, new_name, os.fsdecode(name))
            if level is not None:
                levels.append(level)
            while levels:
                level = levels[-1]
                child = next(level.names, None)
                if child is None:
                    _finish(level)
                    levels.pop().close()
                    continue
                path = f"{level.path}/{os.fsdecode(child)}"
                _, below = self._copy(level.source, child, level.target, child, path)
                if below is not None:
                    levels.append(below)
                if len(levels) > _MOST_LEVELS:
                    raise FileError("too_deep", f"It has more than {_MOST_LEVELS} levels.")
            return identity
        finally:
            for level in levels:
                level.close()

    def _copy(
        self, source: int, name: bytes, target: int, new_name: bytes, path: str
    ) -> tuple[tuple[int, int], _Level | None]:
        """Copy a file or link, or create a folder and return it open."""
        self._entries += 1
        if self._entries > _MOST_ENTRIES:
            raise FileError("too_many", f"It has more than {_MOST_ENTRIES:,} files.")
        status = os.stat(name, dir_fd=source, follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            os.symlink(os.readlink(name, dir_fd=source), new_name, dir_fd=target)
            return (status.st_dev, status.st_ino), None
        if stat.S_ISDIR(status.st_mode):
            return self._open(source, name, target, new_name, path)
        if not stat.S_ISREG(status.st_mode):
            raise _special(path)
        return self._copy_file(source, name, target, new_name, path), None

    def _open(
        self, source: int, name: bytes, target: int, new_name: bytes, path: str
    ) -> tuple[tuple[int, int], _Level]:
        os.mkdir(new_name, 0o700, dir_fd=target)
        below = os.open(name, _FOLDER, dir_fd=source)
        try:
            made = os.open(new_name, _FOLDER, dir_fd=target)
        except OSError:
            os.close(below)
            raise
        status = os.fstat(below)
        return (status.st_dev, status.st_ino), _Level(path, below, made, _names(below))

    def _copy_file(
        self, source: int, name: bytes, target: int, new_name: bytes, path: str
    ) -> tuple[int, int]:
        descriptor = os.open(name, _FILE, dir_fd=source)
        with os.fdopen(descriptor, "rb", buffering=0) as file:
            before = os.fstat(descriptor)
            if not stat.S_ISREG(before.st_mode):
                raise _special(path)
            self.limit_bytes -= before.st_size
            if self.limit_bytes < 0:
                raise FileError("disk_full", "There is not enough space for it in the folder.")
            made = os.open(new_name, _NEW_FILE, 0o600, dir_fd=target)
            # Buffered, because a plain write may write a part of the block.
            with os.fdopen(made, "wb") as copy:
                left = before.st_size
                while left and (block := file.read(min(left, _BLOCK))):
                    copy.write(block)
                    left -= len(block)
                after = os.fstat(descriptor)
                if left or (after.st_size, after.st_mtime_ns) != (
                    before.st_size,
                    before.st_mtime_ns,
                ):
                    raise FileError("changed", "A file in it changed meanwhile. It is not moved.")
                copy.flush()
                os.fchmod(made, before.st_mode & _PERMISSIONS)
                os.utime(made, ns=(before.st_atime_ns, before.st_mtime_ns))
        return before.st_dev, before.st_ino


def _names(folder: int) -> Iterator[bytes]:
    """Yield the names in a folder, not sorted: it may have a million."""
    with os.scandir(folder) as entries:
        for entry in entries:
            yield os.fsencode(entry.name)


def _finish(level: _Level) -> None:
    """Give a copied folder its permissions, which may forbid to write in it, and its time."""
    status = os.fstat(level.source)
    os.fchmod(level.target, status.st_mode & _PERMISSIONS)
    try:
        os.utime(level.target, ns=(status.st_atime_ns, status.st_mtime_ns))
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EINVAL):
            raise


def _special(path: str) -> FileError:
    shown = path.encode("utf-8", "replace").decode()[:200]
    return FileError(
        "special", f"{shown!r} is a pipe, socket or device, which cannot be moved there."
    )
