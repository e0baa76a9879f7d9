"""Report tests that needed a second try, and fail a run in which more than three did.

A test that passes at its second try is only a number in pytest's summary, and of a test that fails
twice the summary shows the second failure, which is often a consequence of the first.
"""

import pytest

MAX_RETRIED = 3
# `.ci/run` counts these lines over all its suites.
LINE = "SECOND TRY"
_LINES = 40


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the run when too many tests needed a second try; `-n` processes leave that to theirs."""
    if session.exitstatus == pytest.ExitCode.OK and len(_retried(session.config)) > MAX_RETRIED:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Write the end of each failure that a second try has hidden, and list the tests at the end."""
    reports = _reports(terminalreporter)
    if not reports:
        return
    terminalreporter.section("failed, and was tried once more")
    for report in reports:
        terminalreporter.section(f"{report.nodeid} ({report.when})", sep="-")
        for line in report.longreprtext.splitlines()[-_LINES:]:
            terminalreporter.write_line(line)
    retried = _retried(terminalreporter.config)
    terminalreporter.section(f"{len(retried)} needed a second try, {MAX_RETRIED} may")
    for nodeid in retried:
        terminalreporter.write_line(f"{LINE} {nodeid}")
    if len(retried) > MAX_RETRIED:
        terminalreporter.write_line(
            f"More than {MAX_RETRIED} tests needed a second try, so this run has failed."
        )


def _reports(reporter: pytest.TerminalReporter) -> list[pytest.TestReport]:
    return [report for report in reporter.stats.get("rerun", []) if report.nodeid]


def _retried(config: pytest.Config) -> list[str]:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None:
        return []
    return list(dict.fromkeys(report.nodeid for report in _reports(reporter)))
