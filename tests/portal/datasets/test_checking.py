"""The process that checks versions, and what it reads with, are killed at the worst moment."""

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import slipway
from slipway.schemas.datasets import DatasetVersionOut
from tests.live import ROOT, LivePortal
from tests.personas import Api, Personas, json_of
from tests.portal.datasets.hostile import nested_parquet
from tests.portal.datasets.pushing import AT, begin, close, fill
from tests.portal.training.lab import client_of

pytestmark = pytest.mark.postgres

# For each line a process of its own checks what waits, so many minutes from now.
_WORKERS = """
import os, sys
from datetime import timedelta
from portal.core import clock
from portal.datasets.version_checks import check_waiting
now = clock.now
print("ready", flush=True)
for line in sys.stdin:
    if not (child := os.fork()):
        later = timedelta(minutes=int(line))
        clock.now = lambda: now() + later
        check_waiting()
        os._exit(0)
    print(child, flush=True)
    os.waitpid(child, 0)
    print("ended", flush=True)
"""


class Workers:
    """Starts workers one after the other, each at a minute of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def begin(self, minute: int) -> int:
        """Start one; returns its process id."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{minute}\n")
        self._process.stdin.flush()
        return int(self.says())

    def says(self) -> str:
        """Return the next line."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def kill_within_a_check(self, minute: int) -> None:
        """Start one, hold the process that reads its table, kill it, then the reader too."""
        worker = self.begin(minute)
        reader = _child_of(worker)
        os.kill(reader, signal.SIGSTOP)
        os.kill(worker, signal.SIGKILL)
        assert self.says() == "ended"
        os.kill(reader, signal.SIGKILL)


def _child_of(parent: int) -> int:
    """Return the id of the one child of a process, once it has one."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if children := Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
            return int(children[0])
    raise AssertionError("the worker reads nothing")


@pytest.fixture(scope="module")
def workers(portal: LivePortal) -> Iterator[Workers]:
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "manage.py"), "shell", "--no-imports", "-c", _WORKERS],
        cwd=ROOT,
        env=portal.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert any("ready" in line for line in iter(process.stdout.readline, ""))
    with process:
        yield Workers(process)
        process.kill()


@pytest.fixture
def alice(portal: LivePortal) -> Iterator[slipway.Client]:
    with client_of(portal, "alice") as client:
        yield client


@pytest.fixture
def project(alice: slipway.Client) -> str:
    return alice.projects.create(f"Project {secrets.token_hex(4)}").slug


@pytest.fixture
def waiting(alice: slipway.Client, project: str, tmp_path: Path) -> DatasetVersionOut:
    """A version with one table that was sent and closed, and waits to be checked."""
    (tmp_path / "rows.csv").write_text("x,y\n" + "1,a\n" * 50_000)
    with pytest.raises(TimeoutError) as waited:
        alice.datasets.push("rows", tmp_path / "rows.csv", project=project, timeout_s=0)
    name = next(word for word in str(waited.value).split() if word.startswith("dsv"))
    return alice.datasets.version("rows", name, project=project)


@pytest.mark.thorough
def test_a_check_that_was_killed_is_made_again_by_another_worker(
    alice: slipway.Client, project: str, waiting: DatasetVersionOut, workers: Workers
) -> None:
    workers.kill_within_a_check(0)
    workers.begin(0)
    assert workers.says() == "ended"
    now = alice.datasets.version("rows", waiting.id, project=project)
    assert now.state == "checking", "who was killed may still have had its turn"
    assert list(alice.datasets.versions("rows", project=project)) == []
    workers.begin(2)
    assert workers.says() == "ended"
    made = alice.datasets.version("rows", project=project)
    assert (made.id, made.number, made.rows) == (waiting.id, 1, 50_000)


@pytest.mark.thorough
def test_a_version_whose_check_always_dies_is_refused_and_never_stuck(
    alice: slipway.Client, project: str, waiting: DatasetVersionOut, workers: Workers
) -> None:
    for minute in (10, 12, 14):
        workers.kill_within_a_check(minute)
    workers.begin(16)
    assert workers.says() == "ended"
    refused = alice.datasets.version("rows", waiting.id, project=project)
    assert (refused.state, "failed three times" in refused.reason) == ("refused", True)


def test_a_file_that_kills_what_reads_it_is_refused_with_the_reason(people: Personas) -> None:
    """Arrow follows the nesting of a schema by recursion, and runs out of stack."""
    bob = Api.of(people.bob)
    draft = begin(bob)
    fill(bob, draft, {"deep.parquet": nested_parquet(100_000), "fine.csv": b"x\n1\n"})
    refused = close(bob, draft)
    assert (refused["state"], refused["bad_rows"]) == ("refused", 1)
    (problem,) = refused["problems"]
    assert problem["path"] == "deep.parquet"
    assert "died (SIGSEGV)" in problem["message"]
    taken = close(bob, draft, allow_bad_rows=True)
    assert (taken["state"], taken["rows"]) == ("ready", 1)
    deep, fine = json_of(bob.get(f"{AT}/digits/versions/1/tables"))
    assert "died" in deep["note"]
    assert fine["statistics"]["rows"] == 1
