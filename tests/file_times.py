"""Prints the test files that took longest, and the total: the gate's time is watched in its log.

`TEST_TIMES=FILE make test` also writes the seconds of every test to the file, as JSON.
"""

import json
import os
from collections import defaultdict
from pathlib import Path

import pytest

LINES = 25
_seconds: defaultdict[str, float] = defaultdict(float)
_tests: defaultdict[str, float] = defaultdict(float)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add the time of set-up, call and teardown to the file of the test."""
    _seconds[report.nodeid.partition("::")[0]] += report.duration
    _tests[report.nodeid] += report.duration


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Write the longest files, in seconds of one process."""
    # Workers of xdist have no terminal; their reports come to the process that has.
    if place := os.environ.get("TEST_TIMES"):
        Path(place).write_text(json.dumps(_tests, indent=1), encoding="utf-8")
    if sum(_seconds.values()) < 60:
        return
    terminalreporter.section(f"longest files of {sum(_seconds.values()):.0f} s")
    for name, seconds in sorted(_seconds.items(), key=lambda item: -item[1])[:LINES]:
        terminalreporter.write_line(f"{seconds:7.1f} s  {name}")
