"""Failed tasks that are kept in allocations: with local processes, and with a real Slurm."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.pools.jobs import (
    JOBS,
    agents_of,
    prepare,
    submit,
    wait_for_state,
    workload_of,
)
from tests.portals import RunningPortal, running_slipway
from tests.processes import wait_for
from tests.slurm_cluster import SlurmCluster, missing_programs, running_slurm
from tests.terminals import Terminal

pytestmark = pytest.mark.integration

_FAILS = """
import pathlib
pathlib.Path("state.txt").write_text("left behind")
raise ValueError("loss is NaN")
"""

_FAILS_ON_RANK_1 = """
import os, pathlib, time
rank = os.environ["RANK"]
pathlib.Path("state.txt").write_text(f"rank {rank} was here")
if rank == "1":
    raise ValueError("loss is NaN")
time.sleep(1000)
"""


@pytest.fixture
def slipway(tmp_path: Path) -> Iterator[RunningPortal]:
    """A Slipway with the relay and a pool of two local places."""
    with running_slipway(tmp_path, SLIPWAY_EMBEDDED_RELAY="true") as portal:
        with portal.client("root") as root:
            prepare(root, {"name": "twin", "engine": "local", "settings": {"places": 2}})
        yield portal


def _kept_job(root: httpx.Client) -> str:
    job = submit(root, script=_FAILS, keep_failed_minutes=15)
    wait_for(lambda: workload_of(root, job)["kept_until"], "a kept job", within_s=180)
    return job


def _shell_in(slipway: RunningPortal, job: str) -> Terminal:
    terminal = Terminal(slipway, "job", "shell", job, "--project", "vision")
    terminal.until(r"[$#] ")
    terminal.type("cat state.txt; echo\n")
    terminal.until("left behind\r\n")
    return terminal


def _end_event(root: httpx.Client, job: str) -> str:
    events: list[dict[str, Any]] = root.get(f"{JOBS}/{job}/events").json()["items"]
    (event,) = [event["message"] for event in events if event["kind"] == "task_ended"]
    return str(event)


def _is_empty(root: httpx.Client) -> bool:
    return bool(root.get("/pools/twin").json()["requests"] == 0)


def test_a_person_looks_into_a_failed_task_in_an_allocation(slipway: RunningPortal) -> None:
    with slipway.client("root") as root:
        job = _kept_job(root)
        terminal = _shell_in(slipway, job)
        assert len(agents_of(slipway)) == 1
        assert Terminal(slipway, "job", "cancel", job, "--project", "vision").end() == 0
        terminal.until("The task has ended")
        ended = wait_for_state(root, job, "failed", "stopped", "lost", "queued")
        assert (ended["state"], ended["reason"], ended["attempt"]) == ("failed", "exit", 1)
        wait_for(lambda: _is_empty(root), "the end of the allocation", within_s=60)
        assert workload_of(root, job)["attempt"] == 1
        assert _end_event(root, job).startswith("No longer kept: Stopped on request.")


@pytest.mark.thorough
def test_a_person_looks_into_all_tasks_of_a_failed_gang(slipway: RunningPortal) -> None:
    with slipway.client("root") as root:
        job = submit(root, script=_FAILS_ON_RANK_1, nodes=2, keep_failed_minutes=15)
        wait_for(lambda: workload_of(root, job)["kept_until"], "a kept job", within_s=180)
        failed = Terminal(slipway, "job", "shell", job, "--project", "vision")
        failed.until(r"[$#] ")
        failed.type("echo rank=$RANK; cat state.txt; echo\n")
        failed.until("rank=1\r\nrank 1 was here\r\n")
        peer = Terminal(slipway, "job", "shell", job, "--project", "vision", "--rank", "0")
        peer.until(r"[$#] ")
        peer.type("echo rank=$RANK; cat state.txt; echo\n")
        peer.until("rank=0\r\nrank 0 was here\r\n")
        # Its process has ended, and its files are there.
        peer.type("pgrep -c -f train[.]py; echo =\n")
        peer.until(r"0\r\n=")
        assert "for 2 nodes)" in workload_of(root, job)["explanation"]
        assert Terminal(slipway, "job", "cancel", job, "--project", "vision").end() == 0
        failed.until("The task has ended")
        peer.until("The task has ended")
        ended = wait_for_state(root, job, "failed", "stopped", "lost", "queued")
        assert (ended["state"], ended["reason"], ended["attempt"]) == ("failed", "exit", 1)
        wait_for(lambda: _is_empty(root), "the end of the allocation", within_s=60)


@pytest.mark.thorough
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_an_allocation_that_ends_takes_its_kept_task_with_it(
    slipway: RunningPortal, number: signal.Signals
) -> None:
    with slipway.client("root") as root:
        job = _kept_job(root)
        terminal = _shell_in(slipway, job)
        (agent,) = agents_of(slipway)
        os.kill(agent, number)
        terminal.end()
        ended = wait_for_state(root, job, "failed", "stopped", "lost", "queued")
        assert (ended["state"], ended["reason"], ended["attempt"]) == ("failed", "exit", 1)
        wait_for(lambda: _is_empty(root), "the end of the allocation", within_s=60)
        assert workload_of(root, job)["state"] == "failed"
        assert "min cost $" in _end_event(root, job)


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[SlurmCluster]:
    """A cluster of two nodes."""
    with running_slurm(tmp_path / "cluster") as cluster:
        yield cluster


@pytest.mark.thorough
@pytest.mark.skipif(
    bool(missing_programs()), reason=f"Slurm is not installed: {missing_programs()}"
)
def test_a_kept_task_in_slurm_ends_with_the_time_limit_of_its_job(
    tmp_path: Path, slurm: SlurmCluster
) -> None:
    with running_slipway(tmp_path / "portal", SLIPWAY_EMBEDDED_RELAY="true") as slipway:
        settings = {
            "partition": "main",
            "slurm_conf": str(slurm.conf),
            "folder": str(tmp_path / "nodes"),
            "portal_url": slipway.url,
        }
        with slipway.client("root") as root:
            prepare(root, {"name": "twin", "engine": "slurm", "settings": settings})
            job = _kept_job(root)
            terminal = _shell_in(slipway, job)
            assert "reaches its time limit" not in workload_of(root, job)["explanation"]
            states = slurm.run("squeue", "--noheader", "--format=%A %T").split()
            handle, state = states
            assert state == "RUNNING"
            slurm.run("scontrol", "update", f"jobid={handle}", "timelimit=+1")
            slurm.run("scontrol", "update", f"jobid={handle}", "timelimit=1")
            wait_for(
                lambda: (
                    "in pool twin reaches its time limit" in workload_of(root, job)["explanation"]
                ),
                "the time limit",
                within_s=60,
            )
            terminal.end()
            ended = wait_for_state(root, job, "failed", "stopped", "lost", "queued")
            assert (ended["state"], ended["reason"], ended["attempt"]) == ("failed", "exit", 1)
            wait_for(lambda: _is_empty(root), "the end of the allocation", within_s=120)
            assert workload_of(root, job)["state"] == "failed"
            event = _end_event(root, job)
            assert "The time limit of its allocation was" in event, event
            (now,) = slurm.run("squeue", "--noheader", "--states=all", "--format=%T").split()
            assert now in {"COMPLETED", "TIMEOUT"}
