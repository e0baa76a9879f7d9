"""Prints the test files that took longest, and the total: the gate's time is watched in its log."""

from collections import defaultdict

import pytest

LINES = 25
_seconds: defaultdict[str, float] = defaultdict(float)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add the time of set-up, call and teardown to the file of the test."""
    _seconds[report.nodeid.partition("::")[0]] += report.duration


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Write the longest files, in seconds of one process."""
    # Workers of xdist have no terminal; their reports come to the process that has.
    if sum(_seconds.values()) < 60:
        return
    terminalreporter.section(f"longest files of {sum(_seconds.values()):.0f} s")
    for name, seconds in sorted(_seconds.items(), key=lambda item: -item[1])[:LINES]:
        terminalreporter.write_line(f"{seconds:7.1f} s  {name}")
