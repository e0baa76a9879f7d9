"""The examples as a person runs them on a laptop: copied somewhere, without Slipway on the path."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.live import ROOT

Run = Callable[..., str]


@pytest.fixture
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """Run a script of the example that the module names as EXAMPLE; returns what it printed.

    The SDK is there for a module that says NEEDS_SDK; a Slipway to talk to never is.
    """
    folder = tmp_path / "example"
    shutil.copytree(
        ROOT / "examples" / request.module.EXAMPLE,
        folder,
        ignore=shutil.ignore_patterns("__pycache__", "*.pt", "*.csv", "*.joblib", "checkpoints"),
    )
    environment = {
        name: value
        for name, value in os.environ.items()
        if name != "PYTHONPATH" and not name.startswith(("SLIPWAY_", "MLFLOW_"))
    }

    environment |= {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    if getattr(request.module, "NEEDS_SDK", False):
        environment["PYTHONPATH"] = str(ROOT / "platform")

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.fixture
def without_slipway(run: Run) -> Run:
    """The same, once it is certain that no script can find Slipway there."""
    output = run("-c", "import importlib.util as u; print(u.find_spec('slipway'))")
    assert output == "None\n"
    return run
