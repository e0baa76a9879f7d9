"""Files in a folder that other people write into, too.

They may replace a file or folder by a link, a pipe or a device at any moment. So each step of a
path is opened from the folder above it and follows no link. Standard library only.
"""

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

_OPEN = os.O_CLOEXEC | os.O_NOFOLLOW
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NONBLOCK | _OPEN
_WRITE_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _OPEN


class SharedFolder:
    """Reads and writes below `root`, never through a link. Paths are relative, with slashes."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def read(self, path: str, *, limit_bytes: int) -> bytes:
        """Return the content of a regular file, or raise OSError, also if it is too large."""
        with self._parent_of(path, creates=False) as (parent, name):
            descriptor = os.open(name, _READ, dir_fd=parent)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise OSError(errno.EINVAL, "not a regular file", path)
            content = file.read(limit_bytes + 1)
        if len(content) > limit_bytes:
            raise OSError(errno.EFBIG, f"larger than {limit_bytes} bytes", path)
        return content

    def write(self, path: str, content: bytes) -> None:
        """Replace a file as a whole, and create its folders, or raise OSError."""
        with self._parent_of(path, creates=True) as (parent, name):
            part = f".slipway-part-{secrets.token_hex(8)}"
            try:
                with os.fdopen(os.open(part, _WRITE_NEW, 0o666, dir_fd=parent), "wb") as file:
                    file.write(content)
                os.replace(part, name, src_dir_fd=parent, dst_dir_fd=parent)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(part, dir_fd=parent)
                raise

    @contextlib.contextmanager
    def _parent_of(self, path: str, *, creates: bool) -> Iterator[tuple[int, str]]:
        """Yield a descriptor of the folder of a path, and the last name in it."""
        *folders, name = path.split("/")
        if any(part in ("", ".", "..") or "\0" in part for part in (*folders, name)):
            raise OSError(errno.EINVAL, "not a path of this folder", path)
        descriptor = os.open(self._root, _FOLDER)
        try:
            for folder in folders:
                if creates:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(folder, dir_fd=descriptor)
                below = os.open(folder, _FOLDER | os.O_NOFOLLOW, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = below
            yield descriptor, name
        finally:
            os.close(descriptor)
