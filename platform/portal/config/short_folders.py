"""Folders of Unix sockets whose paths in the data folder would be too long.

The supervisor imports this module, so it does not use Django.
"""

import hashlib
import os
import stat
import tempfile
from pathlib import Path

from portal.config.supervision.errors import StartError


def short_folder(path: Path, *, holds: str) -> Path:
    """Return a private folder of temporary files in place of `path`, and create it.

    `holds` says in an error what must be there. Raises StartError when another user created it.
    """
    name = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"slipway-{os.getuid()}-{name}"
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise StartError(
            f"{folder} is not a private folder of this user, and {holds} must be there because "
            "the path of the data folder is long; remove it, or set SLIPWAY_DATA_DIR to a "
            "shorter path."
        )
    return folder
