"""Files that a task writes are uploaded with its rights, or reported with a reason."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

import pytest

from slipway.schemas.agent import TaskReport
from tests.workers.machines import Site, eventually

# Ordinary outputs beside everything that could fool the upload, and then an error.
_WRITES = r"""
import os
os.makedirs("outputs")
open("outputs/model.txt", "w").write("weights")
os.makedirs("runs/exp1")
open("runs/exp1/events.out.tfevents.1.host", "w").write("events")
os.makedirs("__pycache__")
open("__pycache__/x.pyc", "w").write("cache")
with open("sparse.bin", "wb") as file:
    file.truncate(1_500_000_000)
os.symlink("/etc/passwd", "passwd")
os.symlink("/etc", "outputs/etc")
os.mkfifo("pipe")
open("two\nlines.txt", "w").write("x")
open(b"\xff.txt", "w").write("x")
open("notes 100%.txt", "w").write("a name to be quoted")
raise SystemExit("the script fails in the end")
"""


class _Artifacts(BaseHTTPRequestHandler):
    """The part of MLflow's API that uploads use. It answers 500 once, as a busy portal does."""

    files: dict[str, bytes]
    failures: list[int]

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Keep the output of tests clean."""

    def do_GET(self) -> None:
        """Answer where the run's artifacts are."""
        assert self.headers["Authorization"] == "Bearer secret"
        self._send(200, {"run": {"info": {"artifact_uri": "mlflow-artifacts:/w/1/r/artifacts"}}})

    def do_PUT(self) -> None:
        """Store a file."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.failures:
            self._send(self.failures.pop(), {})
            return
        self.files[unquote(self.path).partition("/artifacts/w/1/r/artifacts/")[2]] = body
        self._send(200, {})

    def _send(self, status: int, answer: Any) -> None:
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def failures() -> list[int]:
    """Statuses that the next uploads get instead of being stored."""
    return [500]


@pytest.fixture
def mlflow(failures: list[int]) -> Iterator[tuple[dict[str, str], dict[str, bytes]]]:
    """The variables of a task with a run, and the artifacts of that by path."""
    files: dict[str, bytes] = {}
    handler = type("Artifacts", (_Artifacts,), {"files": files, "failures": failures})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    variables = {
        "MLFLOW_TRACKING_URI": f"http://127.0.0.1:{server.server_port}/mlflow",
        "MLFLOW_TRACKING_TOKEN": "secret",
        "MLFLOW_RUN_ID": "r",
    }
    yield variables, files
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def site() -> Iterator[Site]:
    """A node of this machine."""
    made = Site()
    yield made
    made.close()


def _log_with(site: Site, end: TaskReport, text: str) -> str:
    log = site.portal.state.log_of((end.task_id, end.epoch))
    return log if text in log else ""


def test_what_a_task_writes_is_kept_or_reported(
    site: Site, mlflow: tuple[dict[str, str], dict[str, bytes]]
) -> None:
    variables, artifacts = mlflow
    rule = {"keep": ["*.txt", "events.*", "*.bin"], "keep_limit_bytes": 10**9}
    end = site.run_to_end(_WRITES, env=variables, **rule)
    assert (end.reason, end.exit_code) == ("exit", 1), end
    assert "the script fails in the end" in end.message
    reports = site.portal.state.reports[(end.task_id, end.epoch)]
    (files,) = [report.files for report in reports if report.files is not None]
    left_out = {item.path: item.reason for item in files.left_out}
    assert left_out == {
        "sparse.bin": "over the limit of 1.0 GB (--keep-limit)",
        "passwd": "a symbolic link",
        "outputs/etc": "a symbolic link",
        "pipe": "not a regular file",
        "two\\nlines.txt": "its name has a character that no artifact may have",
        "\\udcff.txt": "its name is not UTF-8",
    }
    assert artifacts == {
        "files/outputs/model.txt": b"weights",
        "files/runs/exp1/events.out.tfevents.1.host": b"events",
        "files/notes 100%.txt": b"a name to be quoted",
    }
    assert files.kept_count == len(files.kept) == 3
    log = eventually(lambda: _log_with(site, end, "[slipway] Not kept: two"), what="the log")
    assert "[slipway] Kept 3 files" in log
    assert "[slipway] Not kept: passwd (0 bytes): a symbolic link." in log


@pytest.mark.thorough
def test_files_wait_for_a_server_that_is_started_again(
    site: Site, mlflow: tuple[dict[str, str], dict[str, bytes]], failures: list[int]
) -> None:
    failures += [503] * 6
    variables, artifacts = mlflow
    script = "open('a.txt', 'w').write('x')"
    end = site.run_to_end(script, env=variables, keep=["*"], keep_limit_bytes=10**9)
    assert end.reason == "completed", end
    assert artifacts == {"files/a.txt": b"x"}
    assert not failures
    waits = "[slipway] The program has ended. Keeping its files takes at most 600 s."
    eventually(lambda: _log_with(site, end, waits), what="the reason to wait in the log")


@pytest.mark.thorough
def test_without_a_rule_or_files_nothing_is_reported(
    site: Site, mlflow: tuple[dict[str, str], dict[str, bytes]]
) -> None:
    variables, artifacts = mlflow
    end = site.run_to_end("open('a.txt', 'w').write('x')", env=variables)
    quiet = site.run_to_end("print(1)", env=variables, keep=["*"], keep_limit_bytes=10**9)
    for each in (end, quiet):
        reports = site.portal.state.reports[(each.task_id, each.epoch)]
        assert all(report.files is None for report in reports)
    assert artifacts == {}


def test_files_of_a_program_that_had_to_be_killed_are_kept(
    site: Site, mlflow: tuple[dict[str, str], dict[str, bytes]]
) -> None:
    variables, artifacts = mlflow
    script = (
        "open('a.txt', 'w').write('x')\nimport time\nprint('waits', flush=True)\ntime.sleep(600)"
    )
    rule = {"keep": ["*"], "keep_limit_bytes": 10**9, "hang_after_s": 2}
    end = site.run_to_end(script, env=variables, **rule)
    assert end.reason == "hang", end
    reports = site.portal.state.reports[(end.task_id, end.epoch)]
    (files,) = [report.files for report in reports if report.files is not None]
    assert (files.error, artifacts) == ("", {"files/a.txt": b"x"})
