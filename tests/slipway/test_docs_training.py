"""The examples of docs/training.md run as they stand."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.live import ROOT
from tests.slipway.jobserver import PROJECT, TrainingServer, training_server, wait_until
from tests.slipway.snapshots.folders import make_repository

PAGE = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
SCRIPT, *CELLS = re.findall(r"^```python\n(.*?)^```", PAGE, flags=re.DOTALL | re.MULTILINE)
SHELL = re.findall(r"^```sh\n(.*?)^```", PAGE, flags=re.DOTALL | re.MULTILINE)
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "platform"), "PYTHONUNBUFFERED": "1"}


@contextmanager
def running_jobs(server: TrainingServer) -> Iterator[None]:
    """Let every job that is submitted run and succeed."""
    over = threading.Event()

    def run() -> None:
        done: set[str] = set()
        while not over.wait(0.01):
            for job_id in set(server.jobs) - done:
                done.add(job_id)
                server.set(job_id, state="running", explanation="runs on n1", step=40)
                server.log(b"y = 3.00 x + 1.00\n", job_id=job_id)
                server.set(job_id, state="succeeded", explanation="every rank ended well")

    runner = threading.Thread(target=run)
    runner.start()
    try:
        yield
    finally:
        over.set()
        runner.join()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[TrainingServer]:
    """A server that runs jobs; one is signed in to it, in a folder with the script of the page."""
    make_repository(tmp_path / "code", {"train.py": SCRIPT})
    monkeypatch.chdir(tmp_path / "code")
    with training_server() as job_server, running_jobs(job_server):
        monkeypatch.setenv("SLIPWAY_URL", job_server.url)
        monkeypatch.setenv("SLIPWAY_TOKEN", "slp_x")
        monkeypatch.setenv("SLIPWAY_PROJECT", PROJECT)
        monkeypatch.setenv("SLIPWAY_WORKLOAD", "wl_1")
        job_server.answers[f"projects/{PROJECT}/jobs/wl_1/events"] = {
            "items": [],
            "next_cursor": None,
        }
        yield job_server


def test_the_script_runs_on_a_laptop(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "train.py", "--lr", "0.2", "--steps", "100"],
        cwd=tmp_path,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout == "y = 3.00 x + 1.00\n"


def test_the_script_stops_when_asked_and_goes_on_where_it_was(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    environment = ENVIRONMENT | {
        "SLIPWAY_WORKLOAD": "wl_1",
        "SLIPWAY_PERSISTENT_DIR": str(tmp_path / "kept"),
    }
    command = [sys.executable, "train.py", "--lr=0.2", "--steps=100"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True
    ) as process:
        stat = Path(f"/proc/{process.pid}/status")
        caught = 1 << (signal.SIGTERM - 1)
        wait_until(lambda: int(re.findall(r"SigCgt:\s*(\w+)", stat.read_text())[0], 16) & caught)
        process.terminate()
        _, output = process.communicate(timeout=30)
    assert process.returncode == 1
    stopped = re.search(r"stopped after step (\d+), to be resumed", output)
    assert stopped, output
    again = subprocess.run(
        command,
        cwd=tmp_path,
        env=environment | {"SLIPWAY_ATTEMPT": "2"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    resumed = f"attempt 2 goes on at step {int(stopped[1]) + 1}"
    assert again.stdout.splitlines() == [resumed, "y = 3.00 x + 1.00"]


def test_the_cells_run_one_after_the_other(
    server: TrainingServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(CELLS) == 3
    names: dict[str, object] = {}
    for cell in CELLS:
        exec(compile(cell, "docs/training.md", "exec"), names)  # noqa: S102  (our own page)
    output = capsys.readouterr().out
    assert "succeeded 0\n" in output
    assert "0 y = 3.00 x + 1.00\n" in output
    assert "18 succeeded\n" in output


@pytest.mark.thorough
def test_the_commands_run_one_after_the_other(server: TrainingServer, tmp_path: Path) -> None:
    assert len(SHELL) == 7
    (tmp_path / "code" / "dev.txt").write_text("six\n")
    slipway = f'slipway() {{ {sys.executable} -m slipway "$@"; }}\n'
    done = subprocess.run(
        ["/bin/bash", "-e", "-c", slipway + "\n".join(SHELL)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "platform")},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "code" / "rank0.log").read_bytes() == b"y = 3.00 x + 1.00\n"
    assert [body.get("params") for body in server.bodies] == [
        {"lr": "0.2"},
        *[{}] * 5,
        {"lr": "0.2"},
        *[{}] * 3,
        None,
        {"lr": "0.3"},
        None,
    ]


def test_the_page_is_named_where_training_is_spoken_of() -> None:
    for page in ("cli.md", "sdk.md"):
        assert "(training.md)" in (ROOT / "docs" / page).read_text(encoding="utf-8")
