"""Quickstarts of heavy frameworks run from job to monitoring as they are, one smoke each."""

import subprocess
import sys

import pytest

from tests.live import ROOT

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(2400)]


@pytest.mark.parametrize("row", ["scikit_learn", "pytorch", "tensorflow", "jax", "ray"])
def test_the_quickstart_passes(row: str) -> None:
    done = subprocess.run(
        [sys.executable, "bench/frameworks.py", "--rows", row],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=2300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    assert done.stdout.rstrip().endswith("| passed"), done.stdout[-3000:] + done.stderr[-5000:]
