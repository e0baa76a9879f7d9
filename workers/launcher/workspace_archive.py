"""A folder as a zip, written while it is read. User code may change the folder meanwhile.

Folders are opened by descriptor and no link is followed. What is no regular file, cannot be read
or is beyond a limit is left out, and a last file of the archive lists it. Standard library only.
"""

import os
import stat
import time
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from typing import BinaryIO, Final

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_BLOCK: Final = 1 << 20
_MOST_FILES: Final = 100_000
_MOST_LEVELS: Final = 64
_MOST_NAMED: Final = 1000
_LEVEL: Final = 1
_REPORT: Final = "FILES-LEFT-OUT.txt"
# The range of dates of the format.
_FIRST_DATE: Final = (1980, 1, 1, 0, 0, 0)
_LAST_YEAR: Final = 2107


class _Archive:
    def __init__(self, output: BinaryIO, *, hidden: bool, limit_bytes: int) -> None:
        self._zip = zipfile.ZipFile(output, "w", zipfile.ZIP_DEFLATED, compresslevel=_LEVEL)
        self._hidden = hidden
        self._left_bytes = limit_bytes
        self._files = 0
        self._left_out: list[str] = []

    def add_tree(self, folder: int) -> None:
        """Add all files below an open folder."""
        levels = [("", os.dup(folder), self._entries(folder))]
        try:
            while levels:
                prefix, descriptor, entries = levels[-1]
                name = next(entries, None)
                if name is None:
                    levels.pop()
                    os.close(descriptor)
                    continue
                path = f"{prefix}{_shown(name)}"
                below = self._add(descriptor, name, path)
                if below is None:
                    continue
                if len(levels) >= _MOST_LEVELS:
                    os.close(below)
                    self._leave_out(path, "too deep")
                    continue
                levels.append((f"{path}/", below, self._entries(below)))
        finally:
            for _, descriptor, _ in levels:
                os.close(descriptor)

    def _entries(self, folder: int) -> Iterator[str]:
        """Yield the names in a folder, not sorted: it may have a million."""
        with os.scandir(folder) as entries:
            for entry in entries:
                if self._hidden or not entry.name.startswith("."):
                    yield entry.name

    def _add(self, folder: int, name: str, path: str) -> int | None:
        """Add a file, or return the descriptor of a folder."""
        try:
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode):
                self._zip.writestr(zipfile.ZipInfo(f"{path}/", _date(status)), b"")
                return os.open(name, _FOLDER, dir_fd=folder)
            if not stat.S_ISREG(status.st_mode):
                self._leave_out(path, "a link" if stat.S_ISLNK(status.st_mode) else "not a file")
                return None
            descriptor = os.open(name, _FILE, dir_fd=folder)
        except OSError as error:
            self._leave_out(path, os.strerror(error.errno or 0).lower())
            return None
        with os.fdopen(descriptor, "rb", buffering=0) as file:
            self._add_file(file, path)
        return None

    def _add_file(self, file: BinaryIO, path: str) -> None:
        status = os.fstat(file.fileno())
        self._files += 1
        if not stat.S_ISREG(status.st_mode):
            self._leave_out(path, "not a file")
        elif self._files > _MOST_FILES:
            self._leave_out(path, f"more than {_MOST_FILES} files")
        elif status.st_size > self._left_bytes:
            self._leave_out(path, "too large for one archive")
        else:
            self._left_bytes -= status.st_size
            info = zipfile.ZipInfo(path, _date(status))
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = (status.st_mode & 0o777 | stat.S_IFREG) << 16
            left = status.st_size
            with self._zip.open(info, "w", force_zip64=True) as target, suppress(OSError):
                while left and (block := file.read(min(left, _BLOCK))):
                    target.write(block)
                    left -= len(block)
            if left:
                self._leave_out(path, f"{left} bytes at its end could not be read")

    def _leave_out(self, path: str, reason: str) -> None:
        if len(self._left_out) < _MOST_NAMED:
            self._left_out.append(f"{path!r}: {reason}")
        elif len(self._left_out) == _MOST_NAMED:
            self._left_out.append("and more")

    def close(self) -> None:
        """Write the list of what is left out, and the end of the archive."""
        if self._left_out:
            self._zip.writestr(_REPORT, "\n".join(self._left_out) + "\n")
        self._zip.close()


def write_archive(folder: int, output: BinaryIO, *, hidden: bool, limit_bytes: int) -> None:
    """Write an open folder as a zip. Raises OSError when the output is closed."""
    archive = _Archive(output, hidden=hidden, limit_bytes=limit_bytes)
    archive.add_tree(folder)
    archive.close()


def _shown(name: str) -> str:
    """Return a name that a zip can hold. Unpackers must not take it for a path."""
    text = os.fsencode(name).decode("utf-8", "replace")
    return text.replace("\\", "_")


def _date(status: os.stat_result) -> tuple[int, int, int, int, int, int]:
    try:
        date = time.gmtime(status.st_mtime)[:6]
    except (OverflowError, ValueError, OSError):
        return _FIRST_DATE
    return date if date >= _FIRST_DATE and date[0] <= _LAST_YEAR else _FIRST_DATE
