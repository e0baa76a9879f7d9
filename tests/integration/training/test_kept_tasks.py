"""A failed job that is kept for shells, with the portal, the relay and the agent of a real node."""

import os
import secrets
import signal
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.jobs import Jobs
from tests.portals import RunningPortal, running_slipway
from tests.processes import children_of, command_of, wait_for
from tests.terminals import Terminal

pytestmark = pytest.mark.integration

_FAILS = """
import mlflow, os, pathlib
mlflow.log_metric("loss", 1.0)
pathlib.Path("state.txt").write_text("left behind")
raise ValueError("loss is NaN")
"""


@pytest.fixture(scope="module")
def slipway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPortal]:
    """A Slipway with a node and the relay."""
    folder = tmp_path_factory.mktemp("kept")
    with running_slipway(folder, SLIPWAY_EMBEDDED_RELAY="true") as portal:
        yield portal


@pytest.fixture
def client(slipway: RunningPortal) -> Iterator[httpx.Client]:
    with slipway.client("root") as client:
        yield client


@pytest.fixture
def project(client: httpx.Client) -> str:
    slug = f"kept-{secrets.token_hex(3)}"
    client.post("/projects", json={"name": slug}).raise_for_status()
    return slug


def _kept(jobs: Jobs, **changes: Any) -> str:
    job = jobs.submit(_FAILS, **{"keep_failed_minutes": 15, **changes})
    wait_for(lambda: jobs.look(job)["workload"]["kept_until"], "a kept job", within_s=180)
    return job


def test_a_person_looks_into_a_failed_task(
    slipway: RunningPortal, client: httpx.Client, project: str
) -> None:
    jobs = Jobs(client, project=project)
    job = _kept(jobs)
    # What waits for the end of the job learns of its failure now.
    logs = Terminal(slipway, "job", "logs", job, "--project", project, "--follow")
    logs.until("ValueError: loss is NaN")
    logs.until("is kept for 15 min")
    logs.until(r"Read the last lines of the log")
    assert logs.end() not in (0, None)
    (run,) = client.get(f"/projects/{project}/runs").json()["items"]
    assert run["status"].lower() == "failed", run

    terminal = Terminal(slipway, "job", "shell", job, "--project", project)
    terminal.until(r"[$#] ")
    terminal.type("cat state.txt; echo; echo me=$SLIPWAY_WORKLOAD rank=$RANK\n")
    terminal.until(f"left behind\r\nme={job} rank=0\r\n")
    ended = Terminal(slipway, "job", "cancel", job, "--project", project)
    assert ended.end() == 0
    terminal.until("The task has ended")
    assert terminal.end() == 1
    workload = jobs.end_of(job)
    assert (workload["state"], workload["reason"], workload["exit_code"]) == ("failed", "exit", 1)
    assert "loss is NaN" in workload["explanation"]
    events = client.get(f"/projects/{project}/jobs/{job}/events").json()["items"]
    messages = {event["kind"]: event["message"] for event in events}
    assert messages["task_ended"].startswith("No longer kept: Stopped on request. Keeping it for")
    verbs = [
        event["verb"]
        for event in client.get("/audit", params={"project": project}).json()["items"]
        if event["verb"].startswith("workload.")
    ]
    assert sorted(verbs) == [
        *("workload.close_shell", "workload.end_kept", "workload.open_shell", "workload.submit")
    ]


@pytest.mark.thorough
def test_a_kept_task_survives_crashes_of_the_portal_and_of_the_control_worker(
    slipway: RunningPortal, client: httpx.Client, project: str
) -> None:
    jobs = Jobs(client, project=project)
    job = _kept(jobs)
    killed = [
        pid
        for pid in children_of(slipway.program.process.pid)
        if any(mark in command_of(pid) for mark in ("uvicorn", "workers.control"))
    ]
    assert killed
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: jobs.look(job), "answer of the portal", within_s=120)
    terminal = Terminal(slipway, "job", "shell", job, "--project", project)
    terminal.until(r"[$#] ", within_s=120)
    terminal.type("cat state.txt; echo\n")
    terminal.until("left behind\r\n")
    terminal.type("exit\n")
    assert terminal.end() == 0
    assert jobs.look(job)["workload"]["kept_until"] is not None
    client.post(f"/projects/{project}/jobs/{job}/cancel").raise_for_status()
    assert jobs.end_of(job, within_s=120)["state"] == "failed"
