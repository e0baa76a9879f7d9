"""Where the processes of a test run keep their data."""

import os
import tempfile
from pathlib import Path

PREFIX = "slipway-tests-"
# Set in the first process of a run, and inherited by the others.
_RUN = "TESTS_FOLDER"
_KEPT = frozenset({"SLIPWAY_BENCH_CACHE"})


def _forget_slipway_in_use() -> None:
    """Drop settings of a Slipway that somebody uses from this shell, or from this folder's `.env`.

    Otherwise tests would write into its data, and sweep away its files.
    """
    if _RUN not in os.environ:
        for name in [name for name in os.environ if name.startswith("SLIPWAY_")]:
            if name not in _KEPT:
                del os.environ[name]
        os.environ[_RUN] = "1"
    os.environ["SLIPWAY_ENV_FILE"] = os.devnull


def own_data_dir() -> str:
    """Return SLIPWAY_DATA_DIR, or a new folder where that is none, or of all processes of `-n`.

    In a folder of all, the sweeps of one would take the files of another.
    """
    _forget_slipway_in_use()
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
    if not given or _RUN not in os.environ:
        return None
    own = Path(given)
    return own.parent if own.parent.name.startswith(PREFIX) else own
