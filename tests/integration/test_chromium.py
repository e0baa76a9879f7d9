"""Tests with a browser leave no trace in those that come after them in the same process."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.live import ROOT
from tests.processes import clean_environment

pytestmark = pytest.mark.browser


@pytest.mark.thorough
def test_a_test_that_is_rerun_leaves_no_event_loop_to_the_next() -> None:
    environ = clean_environment()
    kept = {name: environ[name] for name in environ if not name.startswith("PYTEST")}
    tests = Path(__file__).with_name("reruns_of_chromium.py")
    options = ("-q", "--reruns", "1", "-p", "no:cacheprovider")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(tests)],
        cwd=ROOT,
        env=kept,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "8 passed, 1 rerun" in done.stdout
