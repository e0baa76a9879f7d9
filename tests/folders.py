"""Where a process of the test run keeps its data."""

import os
import tempfile
from pathlib import Path

PREFIX = "slipway-tests-"


def own_data_dir() -> str:
    """Return SLIPWAY_DATA_DIR, or a new folder where that is none or another process's of `-n`.

    In a folder of all, the sweeps of one would take the files of another.
    """
    given = os.environ.get("SLIPWAY_DATA_DIR", PREFIX)
    name, end = Path(given).name, f"-{os.environ.get('PYTEST_XDIST_WORKER', 'alone')}"
    if not name.startswith(PREFIX) or name.endswith(end):
        return given
    return tempfile.mkdtemp(prefix=PREFIX, suffix=end)
