"""Short names for folders with long paths: links in /tmp, for sockets that are made below them.

The link is the agent's own, so no task can change where it leads, and the kernel follows it for
other users too (`fs.protected_symlinks` allows links of the owner of /tmp or of the follower).
"""

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

_FOLDER: Final = Path("/tmp")  # noqa: S108 - only links, whose names need not be trusted
_SHORT_ENOUGH: Final = 24


def short_link(folder: Path) -> str:
    """Return a short path that leads to a folder, or its own path if there is no shorter one.

    If another owner holds the name already, the folder is used by its long path.
    """
    if len(str(folder)) <= _SHORT_ENOUGH:
        return str(folder)
    link = _link_of(folder)
    with suppress(OSError):
        link.symlink_to(folder)
    return str(link) if _is_own_link(link, folder) else str(folder)


def remove_short_link(folder: Path) -> None:
    """Remove what `short_link` made."""
    link = _link_of(folder)
    if _is_own_link(link, folder):
        with suppress(OSError):
            link.unlink()


def _link_of(folder: Path) -> Path:
    return _FOLDER / f"slipway-{hashlib.sha256(os.fsencode(folder)).hexdigest()[:12]}"


def _is_own_link(link: Path, folder: Path) -> bool:
    try:
        return link.lstat().st_uid == os.getuid() and link.readlink() == folder
    except OSError:
        return False
