"""A preemptible script on a real agent: it saves, makes way, and goes on at its saved step."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.integration.pools.jobs import JOBS, log_of, wait_for_state, workload_of
from tests.integration.pools.jobs import submit as submit_to_pool
from tests.portals import running_slipway
from tests.processes import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.thorough]

# Counts steps and saves the last one when it is asked to stop.
COUNTER = """
import signal, sys, time
from slipway import job

saved = job.current().checkpoint_dir / "step"
step = int(saved.read_text()) if saved.exists() else 0
print("starts at step", step, flush=True)

def stop(*_):
    saved.parent.mkdir(parents=True, exist_ok=True)
    saved.write_text(str(step))
    print("saved step", step, flush=True)
    sys.exit(143)

signal.signal(signal.SIGTERM, stop)
while not step or not saved.exists():
    step += 1
    print("step", step, flush=True)
    time.sleep(0.2)
"""
SLEEPER = "import time; time.sleep(2)"


@pytest.fixture
def root(tmp_path: Path) -> Iterator[httpx.Client]:
    """A Slipway with one node and a project."""
    with running_slipway(tmp_path) as portal, portal.client("root") as client:
        client.post("/projects", json={"name": "Vision"}).raise_for_status()
        yield client


def submit(root: httpx.Client, script: str, **changes: object) -> str:
    return submit_to_pool(root, script, pool=None, tier="cpu-large", **changes)


def test_it_is_moved_and_resumes_at_its_saved_step(root: httpx.Client) -> None:
    moved = submit(root, COUNTER, name="cheap", preemptible=True)
    wait_for_state(root, moved, "running")
    wait_for(lambda: "step 5" in log_of(root, moved), "first steps", within_s=60)
    urgent = submit(root, SLEEPER, name="urgent")
    wait_for_state(root, urgent, "placed", "starting", "running", "succeeded")
    assert workload_of(root, moved)["preemptions"] == 1
    assert wait_for_state(root, urgent, "succeeded", "failed")["state"] == "succeeded"
    ended = wait_for_state(root, moved, "succeeded", "failed", "stopped", "lost")
    assert (ended["state"], ended["attempt"]) == ("succeeded", 2), ended
    first = root.get(f"{JOBS}/{moved}/logs", params={"rank": 0, "attempt": 1}).text
    second = root.get(f"{JOBS}/{moved}/logs", params={"rank": 0, "attempt": 2}).text
    saved = first.split("saved step ")[1].split()[0]
    assert f"starts at step {saved}" in second
    detail = root.get(f"/projects/vision/workloads/{moved}").json()
    assert detail["moves"][0]["sentence"] == "Moved for job urgent of project vision."
