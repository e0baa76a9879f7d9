"""Where the processes of a test run keep their data."""

import os
import tempfile
from pathlib import Path

PREFIX = "slipway-tests-"


def own_data_dir() -> str:
    """Return SLIPWAY_DATA_DIR, or a new folder where that is none, or of all processes of `-n`.

    In a folder of all, the sweeps of one would take the files of another.
    """
    given = os.environ.get("SLIPWAY_DATA_DIR", "")
    if not given:
        return tempfile.mkdtemp(prefix=PREFIX)
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    if not worker or not Path(given).name.startswith(PREFIX):
        return given
    return str(Path(given) / worker)


def folder_of_the_run() -> Path | None:
    """Return the folder that all processes of this run share; None where no tests run."""
    given = os.environ.get("SLIPWAY_DATA_DIR")
    if not given:
        return None
    own = Path(given)
    return own.parent if own.parent.name.startswith(PREFIX) else own
