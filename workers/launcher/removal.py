"""Deletes folders that user code has filled, however it has filled them.

`shutil.rmtree` recurses, so a tree of a thousand levels ends it, and it gives up at folders without
permissions. Here deeper folders are moved up to the top and become its next entries. Everything is
reached by descriptors, no link is followed, and at most two levels are open at a time.
"""

import logging
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

log = logging.getLogger(__name__)
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ROUNDS: Final = 1_000_000


def remove_tree(path: Path) -> bool:
    """Delete a folder. Return False if some of it remains, for example on a broken disk."""
    try:
        top = _open_folder(str(path), None)
    except FileNotFoundError:
        return True
    except OSError:
        with suppress(OSError):
            path.unlink()
        return not os.path.lexists(path)
    try:
        _empty(top)
    finally:
        os.close(top)
    try:
        path.rmdir()
    except OSError as error:
        log.warning("%s could not be removed: %s", path, error.strerror)
        return False
    return True


def remove_entry(name: bytes, parent: int) -> None:
    """Delete one entry of an open folder, with its contents if it is a folder. Raises OSError."""
    if not stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
        os.unlink(name, dir_fd=parent)
        return
    top = _open_folder(name, parent)
    try:
        _empty(top)
    finally:
        os.close(top)
    os.rmdir(name, dir_fd=parent)


def _open_folder(name: str | bytes, parent: int | None) -> int:
    """Open a folder, after making it ours to read and change if need be. Raises OSError."""
    with suppress(OSError):
        return _accessible(name, parent)
    status = os.stat(name, dir_fd=parent, follow_symlinks=False)
    # chmod of a path follows links, so use a descriptor that is known to be a folder.
    place = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        Path(f"/proc/self/fd/{place}").chmod((status.st_mode & 0o777) | 0o700)
    finally:
        os.close(place)
    return _accessible(name, parent)


def _accessible(name: str | bytes, parent: int | None) -> int:
    descriptor = os.open(name, _FOLDER, dir_fd=parent)
    if os.geteuid() and os.fstat(descriptor).st_mode & 0o300 != 0o300:
        os.fchmod(descriptor, 0o700)
    return descriptor


def _empty(top: int) -> None:
    """Remove the entries of a folder. Folders inside of its folders are moved up first."""
    for _ in range(_ROUNDS):
        folders = _remove_files(top)
        if not folders:
            return
        progress = False
        for name in folders:
            with suppress(OSError):
                inner = _open_folder(name, top)
                try:
                    for deeper in _remove_files(inner):
                        with suppress(OSError):
                            # Renaming a folder changes its "..", so it must be writable itself.
                            os.close(_open_folder(deeper, inner))
                            moved = f".{secrets.token_hex(8)}"
                            os.rename(deeper, moved, src_dir_fd=inner, dst_dir_fd=top)
                finally:
                    os.close(inner)
                os.rmdir(name, dir_fd=top)
                progress = True
        if not progress:
            return


def _remove_files(folder: int) -> list[str]:
    """Remove everything but folders and return the names of the folders."""
    folders = []
    with os.scandir(folder) as entries:
        for entry in list(entries):
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)
            else:
                with suppress(OSError):
                    os.unlink(entry.name, dir_fd=folder)
    return folders
