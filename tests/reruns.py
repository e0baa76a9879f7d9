"""Why a test that was tried once more had failed: the first cause, where nobody else tells it.

What passes at its second try is a name in the summary, and of what fails twice the summary shows
the second failure, which is often a consequence of the first.
"""

import pytest

_LINES = 40


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Write the end of each failure that a second try has hidden."""
    reports = terminalreporter.stats.get("rerun", [])
    if not reports:
        return
    terminalreporter.section("failed, and was tried once more")
    for report in reports:
        assert isinstance(report, pytest.TestReport)
        terminalreporter.section(f"{report.nodeid} ({report.when})", sep="-")
        for line in report.longreprtext.splitlines()[-_LINES:]:
            terminalreporter.write_line(line)
