"""bench/run.py: chosen scripts run small, their figures become one table, failures are told."""

import json
import subprocess
import sys

import pytest

from bench.run import (
    BEGIN,
    SCRIPTS,
    ScriptResult,
    medians,
    read_output,
    replace_between_markers,
    table,
)
from tests.live import ROOT


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run it as a person does."""
    return subprocess.run(
        [sys.executable, "bench/run.py", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_every_script_that_measures_is_one_to_choose() -> None:
    measuring = {
        path.stem
        for path in (ROOT / "bench").glob("*.py")
        if '"--json"' in path.read_text(encoding="utf-8") and path.stem != "run"
    }
    assert measuring == set(SCRIPTS)
    assert run("--list").stdout.split() == list(SCRIPTS)


@pytest.mark.thorough
def test_a_chosen_script_runs_small_and_its_figures_stand_in_the_table() -> None:
    done = run("drift", "--quick")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| drift `false_alarm_rate` |" in done.stdout
    assert "Not for quoting" in done.stdout
    assert "versions: Django " in done.stdout
    kept = json.loads((ROOT / ".cache" / "bench" / "results.json").read_text(encoding="utf-8"))
    assert "false_alarm_rate" in kept["cases"]["drift"]


@pytest.mark.parametrize("arguments", [["breakfast"], ["drift", "--quick", "--write"]])
def test_what_cannot_be_is_refused_in_words(arguments: list[str]) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert "there is no breakfast" in done.stderr or "not for RESULTS.md" in done.stderr


def test_the_median_of_the_repeats_counts() -> None:
    runs = [{"a": {"ours": value, "peer": None, "unit": "s"}} for value in (3.0, 1.0, 2.0)]
    assert medians(runs) == {"a": {"unit": "s", "ours": 2.0, "peer": None, "ratio": None}}


def test_a_script_without_figures_is_told_with_its_last_words() -> None:
    runs, failure = read_output("working\nImportError: no mosec here", 1)
    assert runs == []
    made = table([ScriptResult("serving", runs, failure)], {"machine": "2 cores"}, quick=False)
    assert "- `serving`: exit 1: ImportError: no mosec here" in made


def test_the_table_replaces_the_one_before_and_nothing_else() -> None:
    once = replace_between_markers("# Measured\n\nBy hand.\n", "| old |\n")
    again = replace_between_markers(once + "\n## After\n", "| new |\n")
    assert again.count(BEGIN) == 1
    assert "| old |" not in again
    assert again.startswith("# Measured\n\nBy hand.\n")
    assert again.endswith("## After\n")
