"""Errors at the start of Slipway: one sentence that says what to do."""

import errno
from pathlib import Path

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class StartError(Exception):
    """Slipway cannot start here. The message is one line that ends with the next step."""


def is_disk_full(error: OSError) -> bool:
    """Return True if the system refused a write because the disk is full."""
    return error.errno in _FULL


def start_error_from(error: OSError, folder: Path) -> StartError:
    """Turn a failure to write below `folder` into a StartError with the next step."""
    if is_disk_full(error):
        return StartError(
            f"the disk that holds {folder} is full; free some space, or set SLIPWAY_DATA_DIR to a "
            "folder on another disk."
        )
    return StartError(
        f"{error.filename or folder} cannot be used ({error.strerror or error}); fix its owner "
        "and permissions, or set SLIPWAY_DATA_DIR to a folder you own."
    )
