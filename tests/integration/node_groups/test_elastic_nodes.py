"""Node groups of local processes: real agents that join when jobs wait and leave when idle."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.pools.jobs import (
    JOBS,
    TINY,
    job_body,
    wait_for_state,
    workload_of,
)
from tests.portals import RunningPortal, running_slipway
from tests.processes import children_of, command_of, wait_for

pytestmark = [pytest.mark.integration, pytest.mark.thorough]

GROUP = {
    "name": "burst",
    "provisioner": "local",
    "settings": {"machines": 2},
    "resources": {"cpu_millis": 250, "memory_bytes": 512 * 2**20},
    "max_nodes": 2,
    "idle_grace_s": 10,
    "nano_usd_per_hour": 3_600_000_000_000,
}


@pytest.fixture
def slipway(tmp_path: Path) -> Iterator[RunningPortal]:
    """A Slipway whose own node takes no work, with a group of at most two nodes."""
    with running_slipway(tmp_path) as portal:
        with portal.client("root") as root:
            root.post("/projects", json={"name": "Vision"}).raise_for_status()
            root.post("/tiers", json=TINY).raise_for_status()
            answer = root.post("/node-groups", json=GROUP)
            assert answer.is_success, answer.text
            (node,) = root.get("/nodes").json()["items"]
            root.post(f"/nodes/{node['name']}/cordon", json={}).raise_for_status()
        try:
            yield portal
        finally:
            for pid in agents(portal):
                os.kill(pid, signal.SIGTERM)
            wait_for(lambda: not agents(portal), "end of all agents", within_s=60)


def submit(root: httpx.Client, **changes: Any) -> str:
    """Submit a job and return its id."""
    answer = root.post(JOBS, json=job_body(root, **({"pool": None} | changes)))
    assert answer.is_success, answer.text
    job_id: str = answer.json()["workload"]["id"]
    return job_id


def machines(root: httpx.Client) -> list[dict[str, Any]]:
    """Return the machines of the group, the newest first."""
    rows: list[dict[str, Any]] = root.get("/node-groups/burst/machines").json()["items"]
    return rows


def group(root: httpx.Client) -> dict[str, Any]:
    """Return the group."""
    row: dict[str, Any] = root.get("/node-groups/burst").raise_for_status().json()
    return row


def test_a_job_gets_a_node_and_the_node_leaves_when_it_is_idle(slipway: RunningPortal) -> None:
    with slipway.client("root") as root:
        assert machines(root) == []
        job_id = submit(root, script="import time; time.sleep(8); print('done')")
        wait_for(
            lambda: "node of group burst is starting" in workload_of(root, job_id)["explanation"],
            f"reason, it is {workload_of(root, job_id)['explanation']}",
            within_s=60,
        )
        wait_for_state(root, job_id, "running", "succeeded", "failed")
        (machine,) = machines(root)
        assert machine["state"] == "joined"
        assert machine["work"], machine
        assert wait_for_state(root, job_id, "succeeded", "failed")["state"] == "succeeded"
        wait_for(lambda: machines(root)[0]["state"] == "released", "release", within_s=90)
        (machine,) = machines(root)
        assert "had no work" in machine["reason"]
        assert machine["idle_s"] >= 10
        assert [node["name"] for node in root.get("/nodes").json()["items"]] != []
        assert machine["name"] not in [n["name"] for n in root.get("/nodes").json()["items"]]
        cost = group(root)["cost"]
        # A dollar a second: what was idle, and what was starting.
        idle_s = cost["idle_s"] + cost["starting_s"]
        assert cost["overhead_nano_usd"] == pytest.approx(idle_s * 1e9, rel=0.01)
        assert cost["overhead_nano_usd"] < cost["nano_usd"]
        assert group(root)["usual_start_s"] > 0


def test_a_gang_gets_all_its_nodes_and_a_larger_one_waits_and_says_why(
    slipway: RunningPortal,
) -> None:
    with slipway.client("root") as root:
        job_id = submit(root, nodes=2)
        assert wait_for_state(root, job_id, "succeeded", "failed")["state"] == "succeeded"
        assert len(machines(root)) == 2
        larger = submit(root, nodes=3)
        waiting = workload_of(root, larger)["explanation"]
        assert waiting == "Waiting: node group burst may have 2 nodes, and this needs 3."


def test_a_machine_that_is_killed_is_replaced_while_work_waits(slipway: RunningPortal) -> None:
    with slipway.client("root") as root:
        job_id = submit(root, script="import time; time.sleep(15)")
        wait_for_state(root, job_id, "running")
        (name,) = [row["name"] for row in machines(root)]
        (agent,) = agents(slipway, name)
        os.kill(agent, signal.SIGKILL)
        ended = wait_for_state(root, job_id, "succeeded", "failed", "lost")
        assert ended["state"] == "succeeded", ended
        assert ended["attempt"] == 2
        assert len(machines(root)) == 2
        (before,) = [row for row in machines(root) if row["name"] == name]
        assert "ended it" in before["reason"] or "heartbeats" in before["reason"], before


def test_a_killed_control_worker_makes_no_machine_twice(slipway: RunningPortal) -> None:
    with slipway.client("root") as root:
        job_id = submit(root)
        wait_for(lambda: machines(root), "machine", within_s=60)
        os.kill(control_of(slipway), signal.SIGKILL)
        assert wait_for_state(root, job_id, "succeeded", "failed")["state"] == "succeeded"
        assert len(machines(root)) == 1


def test_nodes_end_with_slipway_and_their_work_goes_on_at_the_next_start(
    slipway: RunningPortal,
) -> None:
    with slipway.client("root") as root:
        job_id = submit(root, script="import time; time.sleep(600)")
        wait_for_state(root, job_id, "running")
        (name,) = [row["name"] for row in machines(root)]
        assert agents(slipway, name)
        slipway.program.signal(signal.SIGTERM)
        assert slipway.program.wait(60) == 0
        assert agents(slipway) == []
        assert "ended 1 node of node groups" in slipway.log()
        slipway.restart()
        wait_for(
            lambda: (
                workload_of(root, job_id)["state"] == "running"
                and machines(root)[0]["name"] != name
            ),
            "run of the job on another node",
            within_s=240,
        )
        first = machines(root)[-1]
        assert first["name"] == name
        assert first["reason"] == "Local processes ended it."
        wait_for(
            lambda: not list(slipway.installation.data_dir.glob(f"groups/*/{name}")),
            "end of its folder",
            within_s=60,
        )


def agents(slipway: RunningPortal, name: str = "") -> list[int]:
    """Return the process ids of the agents of machines, or of the machine of this name."""
    folder = bytes(slipway.installation.data_dir) + b"/groups/"
    pids = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes()
        except OSError:
            continue
        if b"--data-dir\0" + folder in command and f"/{name}".encode() in command:
            pids.append(int(path.parent.name))
    return pids


def control_of(slipway: RunningPortal) -> int:
    """Return the process id of the control worker."""
    (pid,) = [
        child
        for child in children_of(slipway.program.pid)
        if "workers.control" in command_of(child)
    ]
    return pid
