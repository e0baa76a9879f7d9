"""Removes what the tasks of a project leave outside of their folders, where no sandbox takes it.

At the level `users` all tasks see the shared memory and the temporary folders of the machine. What
belongs to the user of a project there is removed once no process of that user is left.
"""

import ctypes
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from workers.launcher.removal import remove_tree

_FOLDERS: Final = (Path("/dev/shm"), Path("/tmp"), Path("/var/tmp"))  # noqa: S108
_IPC_RMID: Final = 0
_LIBC = ctypes.CDLL(None, use_errno=True)


def remove_leftovers(uid: int) -> None:
    """Remove files and System V objects of a user without processes. Needs root."""
    before = time.time()
    if uid == 0 or _runs_processes(uid):
        return
    for folder in _FOLDERS:
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in list(entries):
                with suppress(OSError):
                    _remove(folder / entry.name, uid, before)
    # Keys, ids, …: the columns differ by kind, but each has the second as its id.
    for kind, remove in (("shm", _LIBC.shmctl), ("msg", _LIBC.msgctl)):
        for identifier in _objects(kind, uid):
            remove(identifier, _IPC_RMID, None)
    for identifier in _objects("sem", uid):
        _LIBC.semctl(identifier, 0, _IPC_RMID)


def _remove(path: Path, uid: int, before: float) -> None:
    status = path.lstat()
    # Newer ones may belong to a task that has just started.
    if status.st_uid == uid and status.st_ctime < before:
        if path.is_dir() and not path.is_symlink():
            remove_tree(path)
        else:
            path.unlink()


def _runs_processes(uid: int) -> bool:
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError, ValueError):
                status = (folder / "status").read_text("utf-8", errors="replace")
                line = next(item for item in status.splitlines() if item.startswith("Uid:"))
                if str(uid) in line.split()[1:]:
                    return True
    return False


def _objects(kind: str, uid: int) -> list[int]:
    """Numbers of the System V objects that a user made."""
    with suppress(OSError):
        header, *lines = Path(f"/proc/sysvipc/{kind}").read_text("ascii").splitlines()
        column = header.split().index("cuid")
        rows = [line.split() for line in lines]
        return [int(row[1]) for row in rows if int(row[column]) == uid]
    return []
