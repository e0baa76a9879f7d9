"""Exclusive lock on the data folder, and a check of the free space on its disk."""

import fcntl
import os
import time
from pathlib import Path

from portal.config.supervision.errors import StartError, start_error_from

# Enough for the database to grow while someone reads the warning. The set-up checks for more.
LEAST_FREE_MIB = 200
_PATIENCE_S = 1.5


def check_space(folder: Path, least_mib: int = LEAST_FREE_MIB) -> None:
    """Raise StartError when the disk that holds `folder` has less than `least_mib` MiB free."""
    usage = os.statvfs(folder)
    free_mib = usage.f_bavail * usage.f_frsize // (1024 * 1024)
    if free_mib < least_mib:
        raise StartError(
            f"the disk that holds {folder} has {free_mib} MiB free and Slipway needs {least_mib} "
            "MiB; free some space, or set SLIPWAY_DATA_DIR to a folder on another disk."
        )


def lock_folder(folder: Path) -> int:
    """Create the data folder and lock it for this process. Return the lock's file descriptor.

    The lock is free again when every process that holds the descriptor has ended. Raises StartError
    when another instance runs on the folder, or it cannot be written to.
    """
    path = folder / "up.lock"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise start_error_from(error, folder) from None
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            # A killed supervisor's guard holds the lock until it has cleaned up: wait for that.
            if time.monotonic() > deadline:
                holder = os.pread(descriptor, 20, 0).decode(errors="replace").strip()
                raise StartError(
                    f"Slipway already runs on {folder} (process {holder or 'unknown'}); use that "
                    "one, stop it, or set SLIPWAY_DATA_DIR to another folder."
                ) from None
            time.sleep(0.05)
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
    except OSError as error:
        raise start_error_from(error, folder) from None
    return descriptor
