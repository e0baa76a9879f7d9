"""A run lists the tests that needed a second try and why, and fails when more than three did."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import ROOT, clean_environment
from tests.turns import thorough_after

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


_FLAKY = """
from pathlib import Path
import pytest

@pytest.mark.parametrize("number", range({tests}))
def test_flaky(number):
    file = Path(__file__).with_name(f"tried-{{number}}")
    tried = file.exists()
    file.touch()
    assert tried
"""


def _run(folder: Path, tests: str, *, processes: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_twice.py").write_text(tests)
    (folder / "pytest.ini").write_text("[pytest]\n")
    # Of its own: it would clear away what runs of before have left in the shared one, for minutes.
    places = (f"--basetemp={folder / 'temporary'}", str(folder))
    plugins = ("-p", "tests.reruns", "-p", "no:django", "-p", "no:schemathesis")
    environment = {key: value for key, value in clean_environment().items() if "PYTEST" not in key}
    return subprocess.run(
        [sys.executable, "-m", "pytest", *plugins, "-n", processes, "--reruns", "1", *places],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.thorough
@pytest.mark.parametrize("processes", ["0", "2"])
def test_the_first_failure_is_reported(tmp_path: Path, processes: str) -> None:
    done = _run(tmp_path, _TESTS, processes=processes)
    assert "1 failed, 3 passed, 3 rerun" in done.stdout, done.stdout + done.stderr
    summary = done.stdout.partition("failed, and was tried once more")[2]
    assert "test_twice.py::test_that_passes_then (call)" in summary
    assert "test_twice.py::test_that_has_no_furniture (setup)" in summary
    assert "the first cause" in summary
    assert "no chair was there" in summary
    assert "line 99 the cause" in summary
    assert "line 2\n" not in summary, "the end is shown, not all"
    assert "3 needed a second try" in summary
    assert summary.count("SECOND TRY ") == 3


@pytest.mark.parametrize("processes", thorough_after(1, ["2", "0"]))
@pytest.mark.parametrize(("tests", "status"), thorough_after(1, [(4, 1), (3, 0)]))
def test_more_than_three_second_tries_fail_the_run(
    tmp_path: Path, processes: str, tests: int, status: int
) -> None:
    done = _run(tmp_path, _FLAKY.format(tests=tests), processes=processes)
    assert f"{tests} passed, {tests} rerun" in done.stdout, done.stdout + done.stderr
    assert done.returncode == status, done.stdout
    names = [line for line in done.stdout.splitlines() if line.startswith("SECOND TRY ")]
    assert sorted(names) == [
        f"SECOND TRY test_twice.py::test_flaky[{number}]" for number in range(tests)
    ]


def test_every_run_reports_second_tries(pytestconfig: pytest.Config) -> None:
    assert pytestconfig.pluginmanager.has_plugin("tests.reruns")
