"""The name under which Jupyter's API shows the folder of the person whose server this is."""

import os
from pathlib import Path
from typing import Final

PERSONAL: Final = "personal"


def personal_folder() -> Path:
    """Return the folder of the person whose server this is."""
    return Path(os.environ["HOME"])


def path_in_personal(path: str) -> str | None:
    """Return the part of an API path below `personal`, or None for paths of the workspace."""
    first, _, rest = path.strip("/").partition("/")
    return rest if first == PERSONAL else None
