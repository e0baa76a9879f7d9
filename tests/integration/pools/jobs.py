"""Jobs in pools: scripts, and requests through the API, for tests of every engine."""

from pathlib import Path
from typing import Any

import httpx

from tests.portal.training.jobs import tar_of
from tests.portals import RunningPortal
from tests.processes import wait_for

SCRIPT = """
import os, mlflow
mlflow.log_metric("accuracy", 0.9)
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"])
"""
# Saves its step when it is asked to end, and goes on from there.
SAVER = """
import signal, sys, time
from slipway import job
saved = job.current().checkpoint_dir / "step"
start = int(saved.read_text()) if saved.exists() else 0
print("starts at", start, flush=True)
def save(*_):
    saved.parent.mkdir(parents=True, exist_ok=True)
    saved.write_text("7")
    print("saved", flush=True)
    sys.exit(143)
signal.signal(signal.SIGTERM, save)
if not start:
    time.sleep(600)
"""
TINY = {
    "name": "CPU tiny",
    "slug": "cpu-tiny",
    "resources": {"cpu_millis": 250, "memory_bytes": 512 * 2**20},
    "nano_usd_per_hour": 20_000_000,
}
JOBS = "/projects/vision/jobs"


def prepare(root: httpx.Client, pool: dict[str, Any]) -> None:
    """Create a project, a tier and a pool. The node of the installation takes no work."""
    root.post("/projects", json={"name": "Vision"}).raise_for_status()
    root.post("/tiers", json=TINY).raise_for_status()
    answer = root.post("/pools", json=pool)
    assert answer.is_success, answer.text
    (node,) = root.get("/nodes").json()["items"]
    root.post(f"/nodes/{node['name']}/cordon", json={}).raise_for_status()


def submit(root: httpx.Client, script: str = SCRIPT, **changes: Any) -> str:
    """Submit a job to the pool and return its id."""
    answer = root.post(JOBS, json=job_body(root, script, **changes))
    assert answer.is_success, answer.text
    job_id: str = answer.json()["workload"]["id"]
    return job_id


def job_body(root: httpx.Client, script: str = SCRIPT, **changes: Any) -> dict[str, Any]:
    """Upload a script and return the body of a job that runs it in the pool."""
    answer = root.post(
        "/projects/vision/snapshots",
        content=tar_of({"train.py": script.encode()}),
        headers={"Content-Type": "application/octet-stream"},
    )
    digest = answer.raise_for_status().json()["digest"]
    body = {"script": "train.py", "snapshot": digest, "tier": "cpu-tiny", "pool": "twin"}
    return body | changes


def workload_of(root: httpx.Client, job_id: str) -> dict[str, Any]:
    """Return the workload of a job."""
    workload: dict[str, Any] = root.get(f"{JOBS}/{job_id}").raise_for_status().json()["workload"]
    return workload


def wait_for_state(
    root: httpx.Client, job_id: str, *states: str, within_s: float = 120
) -> dict[str, Any]:
    """Wait until a job is in one of the states, and return its workload."""
    try:
        wait_for(
            lambda: workload_of(root, job_id)["state"] in states,
            " or ".join(states),
            within_s=within_s,
        )
    except AssertionError as error:
        raise AssertionError(f"{error}, it is {workload_of(root, job_id)}") from None
    return workload_of(root, job_id)


def log_of(root: httpx.Client, job_id: str, rank: int = 0) -> str:
    """Return the log of a rank."""
    return root.get(f"{JOBS}/{job_id}/logs", params={"rank": rank}).text


def agents_of(slipway: RunningPortal) -> list[int]:
    """Return the process ids of the agents in allocations."""
    pids = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes()
        except OSError:
            continue
        if b"--allocation\0" in command and bytes(slipway.installation.data_dir) in command:
            pids.append(int(path.parent.name))
    return pids
