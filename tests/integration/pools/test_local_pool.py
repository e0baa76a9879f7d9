"""A pool of local processes, the twin of Slurm: real agents that join, run one job and leave."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.pools.jobs import (
    JOBS,
    SAVER,
    agents_of,
    log_of,
    prepare,
    submit,
    wait_for_state,
    workload_of,
)
from tests.portals import RunningPortal, running_slipway
from tests.processes import wait_for

pytestmark = pytest.mark.integration


@pytest.fixture
def slipway(tmp_path: Path) -> Iterator[RunningPortal]:
    """A Slipway with a pool of two places."""
    with running_slipway(tmp_path) as portal:
        with portal.client("root") as root:
            prepare(root, {"name": "twin", "engine": "local", "settings": {"places": 2}})
        yield portal


@pytest.mark.thorough
def test_two_tasks_run_on_nodes_that_exist_for_them_alone(slipway: RunningPortal) -> None:
    with slipway.client("root") as root:
        job_id = submit(root, nodes=2)
        ended = wait_for_state(root, job_id, "succeeded", "failed", "stopped", "lost")
        assert ended["state"] == "succeeded", ended
        wait_for(lambda: root.get("/pools/twin").json()["requests"] == 0, "end", within_s=60)
        names = [node["name"] for node in root.get("/nodes").json()["items"]]
        assert len(names) == 1, names  # the nodes of the allocation are gone
        assert root.get(f"{JOBS}/{job_id}").json()["cost_nano_usd"] > 0


@pytest.mark.thorough
def test_a_job_without_the_pool_does_not_run_there(slipway: RunningPortal) -> None:
    with slipway.client("root") as root:
        inside = submit(root, script="import time; time.sleep(20)")
        outside = submit(root, pool=None)
        wait_for_state(root, inside, "running")
        waiting = workload_of(root, outside)
        assert waiting["state"] == "queued"
        assert "cordoned" in waiting["explanation"]


@pytest.mark.thorough
def test_what_does_not_fit_waits_with_the_reason_of_the_engine(slipway: RunningPortal) -> None:
    with slipway.client("root") as root:
        first = submit(root, script="import time; time.sleep(600)", nodes=2)
        wait_for_state(root, first, "running")
        second = submit(root)
        wait_for(
            lambda: "All 2 places" in workload_of(root, second)["explanation"],
            "reason of the engine",
            within_s=30,
        )
        root.post(f"{JOBS}/{first}/cancel").raise_for_status()
        assert wait_for_state(root, second, "succeeded", "failed")["state"] == "succeeded"


@pytest.mark.thorough
def test_a_preempted_job_saves_and_goes_on_in_the_next_allocation(slipway: RunningPortal) -> None:
    with slipway.client("root") as root:
        job_id = submit(root, script=SAVER)
        wait_for_state(root, job_id, "running")
        wait_for(lambda: "starts at 0" in log_of(root, job_id), "first lines", within_s=60)
        (agent,) = agents_of(slipway)
        os.kill(agent, signal.SIGTERM)
        ended = wait_for_state(root, job_id, "succeeded", "failed", "stopped", "lost")
        assert (ended["state"], ended["attempt"]) == ("succeeded", 2), ended
        assert "starts at 7" in log_of(root, job_id)


@pytest.mark.thorough
def test_a_killed_agent_costs_no_minute(slipway: RunningPortal) -> None:
    with slipway.client("root") as root:
        job_id = submit(root, script="import time; time.sleep(15)")
        wait_for_state(root, job_id, "running")
        (agent,) = agents_of(slipway)
        began = time.monotonic()
        os.kill(agent, signal.SIGKILL)
        wait_for(lambda: workload_of(root, job_id)["attempt"] == 2, "next attempt", within_s=60)
        assert time.monotonic() - began < 45  # a lease lasts 60 s
        assert wait_for_state(root, job_id, "succeeded", "failed")["state"] == "succeeded"
