"""Gives folders of tasks to the Unix user of their project, though user code may own what is in it.

Everything goes by descriptors and never through a link. A file with several names is left alone:
user code may have made one of them for a file that it could only see.
"""

import os
import stat
from contextlib import suppress
from pathlib import Path


def chown_tree(path: Path, uid: int, gid: int) -> None:
    """Make a user the owner of a folder and its contents. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(descriptor).st_uid == uid:
            return
        _chown_content(descriptor, uid, gid)
        os.fchown(descriptor, uid, gid)
    finally:
        os.close(descriptor)


def _chown_content(folder: int, uid: int, gid: int) -> None:
    for _, folders, files, descriptor in os.fwalk(".", dir_fd=folder, follow_symlinks=False):
        for name in (*folders, *files):
            with suppress(FileNotFoundError):
                status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode) or status.st_nlink == 1:
                    os.chown(name, uid, gid, dir_fd=descriptor, follow_symlinks=False)
