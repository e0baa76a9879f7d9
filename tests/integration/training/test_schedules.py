"""Schedules on a real node, with a control worker that is killed while runs start."""

import os
import signal
from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.training.test_sweeps import TINY
from tests.portal.training.jobs import tar_of
from tests.portals import RunningPortal, running_slipway
from tests.processes import children_of, command_of, wait_for

pytestmark = pytest.mark.integration

_JOBS = "/projects/vision/jobs"
_SCHEDULES = "/projects/vision/schedules"
_RUNS = f"{_SCHEDULES}/often/runs"
_ASKED = 6


@pytest.fixture
def slipway(tmp_path: Path) -> Iterator[RunningPortal]:
    """A Slipway with a node and a cheap tier."""
    with running_slipway(tmp_path) as portal:
        with portal.client("root") as root:
            root.post("/projects", json={"name": "Vision"})
            root.post("/tiers", json=TINY).raise_for_status()
        yield portal


def _submit(root: httpx.Client) -> str:
    """Submit a job that only prints, and return its id once it has succeeded."""
    answer = root.post(
        "/projects/vision/snapshots",
        content=tar_of({"train.py": b"print('again')\n"}),
        headers={"Content-Type": "application/octet-stream"},
    )
    body = {
        "script": "train.py",
        "tier": "cpu-tiny",
        "snapshot": answer.raise_for_status().json()["digest"],
    }
    job: str = root.post(_JOBS, json=body).raise_for_status().json()["workload"]["id"]
    wait_for(lambda: _state_of(root, job) == "succeeded", "end of the job", within_s=120)
    return job


def _state_of(root: httpx.Client, job: str) -> str:
    state: str = root.get(f"{_JOBS}/{job}").json()["workload"]["state"]
    return state


def _control_of(slipway: RunningPortal) -> int:
    """Return the process id of the control worker, 0 while there is none."""
    children = children_of(slipway.program.pid)
    return next((pid for pid in children if "workers.control" in command_of(pid)), 0)


def _runs(root: httpx.Client) -> list[dict[str, Any]]:
    """Return the runs of the schedule, the earliest first."""
    items: list[dict[str, Any]] = root.get(f"{_RUNS}?limit=200").raise_for_status().json()["items"]
    return items[::-1]


@pytest.mark.thorough
def test_a_run_beside_the_schedule_is_a_job_that_succeeds(slipway: RunningPortal) -> None:
    with slipway.client("root") as root:
        template = _submit(root)
        body = {"name": "often", "cron": "0 2 * * *", "zone": "Europe/Berlin", "job": template}
        root.post(_SCHEDULES, json=body).raise_for_status()
        root.post(f"{_SCHEDULES}/often/run").raise_for_status()
        wait_for(
            lambda: [run["outcome"] for run in _runs(root)] == ["succeeded"],
            "end of the run",
            within_s=120,
        )


@pytest.mark.thorough
def test_no_run_is_lost_or_started_twice_while_the_worker_is_killed(
    slipway: RunningPortal,
) -> None:
    with slipway.client("root") as root:
        template = _submit(root)
        body = {"name": "often", "cron": "* * * * *", "job": template, "overlap": "queue"}
        root.post(_SCHEDULES, json=body).raise_for_status()
        wait_for(lambda: _runs(root), "run at the next minute", within_s=90)
        for _ in range(_ASKED):
            root.post(f"{_SCHEDULES}/often/run").raise_for_status()
            os.kill(wait_for(lambda: _control_of(slipway), "control worker"), signal.SIGKILL)
        root.post(f"{_SCHEDULES}/often/pause").raise_for_status()
        wait_for(
            lambda: all(run["state"] != "waiting" for run in _runs(root)),
            "start of all runs",
            within_s=240,
        )
        started = [run for run in _runs(root) if run["state"] == "started"]
        assert len([run for run in started if run["requested_by"]]) == _ASKED
        assert len(started) > _ASKED
        wait_for(
            lambda: all(run["outcome"] in (None, "succeeded") for run in _runs(root)),
            "end of all runs",
            within_s=120,
        )
        jobs = {job["workload"]["id"]: job["workload"] for job in root.get(_JOBS).json()["items"]}
    assert sorted(jobs) == sorted([template, *(run["job"] for run in started)])
    of_runs = sorted((jobs[run["job"]] for run in started), key=itemgetter("created_at"))
    for before, after in pairwise(of_runs):  # no two at once
        assert _time(after["created_at"]) >= _time(before["ended_at"])


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)
