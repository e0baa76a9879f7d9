"""A log of a run names why a test failed that was tried once more, whatever became of it then."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import ROOT, clean_environment

_TESTS = """
from pathlib import Path
import pytest

@pytest.fixture
def tries(request):
    file = Path(__file__).with_name(request.node.name)
    file.write_text((file.read_text() if file.exists() else "") + "I")
    return len(file.read_text())

@pytest.fixture
def furniture(tries):
    assert tries > 1, "no chair was there"

def test_that_passes_then(tries):
    many = "\\n".join(f"line {number}" for number in range(100))
    assert tries > 1, many + " the cause"

def test_that_fails_again(tries):
    assert tries > 1, "the first cause"
    assert tries > 2, "what came of it"

def test_that_has_no_furniture(furniture):
    pass

def test_that_is_well(tries):
    assert tries == 1
"""


@pytest.mark.parametrize("processes", ["0", "2"])
def test_the_first_failure_is_told(tmp_path: Path, processes: str) -> None:
    (tmp_path / "test_twice.py").write_text(_TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    # Of its own: it would clear away what runs of before have left in the shared one, for minutes.
    places = (f"--basetemp={tmp_path / 'temporary'}", str(tmp_path))
    plugins = ("-p", "tests.reruns", "-p", "no:django", "-p", "no:schemathesis")
    kept = {key: value for key, value in clean_environment().items() if "PYTEST" not in key}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *plugins, "-n", processes, "--reruns", "1", *places],
        cwd=ROOT,
        env=kept,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "1 failed, 3 passed, 3 rerun" in done.stdout, done.stdout + done.stderr
    told = done.stdout.partition("failed, and was tried once more")[2]
    assert "test_twice.py::test_that_passes_then (call)" in told
    assert "test_twice.py::test_that_has_no_furniture (setup)" in told
    assert "the first cause" in told
    assert "no chair was there" in told
    assert "line 99 the cause" in told
    assert "line 2\n" not in told, "the end is told, not all"


def test_every_run_tells_it(pytestconfig: pytest.Config) -> None:
    assert pytestconfig.pluginmanager.has_plugin("tests.reruns")
