"""A job gets a node in a container, and the container is removed when the node is idle."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.integration.node_groups.node_image import Docker
from tests.integration.pools.jobs import JOBS, TINY, job_body, log_of, wait_for_state
from tests.portals import running_slipway
from tests.processes import children_of, command_of, wait_for

pytestmark = [pytest.mark.docker, pytest.mark.slow]
SCRIPT = """
import os, pathlib, subprocess, time
print("in a container", pathlib.Path("/.dockerenv").exists(), "as", os.getuid(), flush=True)
# The token that joined the node, and the one that it has since.
for path in ("/run/slipway/join-token", "/node/node.json"):
    try:
        print("read", path, pathlib.Path(path).read_text(), flush=True)
    except OSError as error:
        print("not readable", path, error.strerror, flush=True)
for command in (["unshare", "-U", "true"], ["mount", "-t", "tmpfs", "none", "/mnt"]):
    print(command[0], "refused" if subprocess.run(command).returncode else "worked", flush=True)
print("sockets", [str(path) for path in pathlib.Path("/var/run").glob("docker*")], flush=True)
status = pathlib.Path("/proc/self/status").read_text()
print([line for line in status.splitlines() if line.startswith("CapEff")], flush=True)
time.sleep(8)
"""


def group_of(engine: Docker, image: str, **settings: Any) -> dict[str, Any]:
    """Return the body of a group whose containers reach the portal on this machine."""
    return {
        "name": "boxes",
        "provisioner": "docker",
        "settings": {
            "socket": str(engine.socket),
            "image": image,
            "network": "host",
            "machines": 2,
            **settings,
        },
        "resources": {"cpu_millis": 250, "memory_bytes": 512 * 2**20},
        "max_nodes": 1,
        "idle_grace_s": 10,
        "nano_usd_per_hour": 3_600_000_000,
    }


@pytest.mark.parametrize("isolation", ["shared", "namespaces"])
def test_a_job_gets_a_container_which_is_removed_when_it_is_idle(
    isolation: str, engine: Docker, node_image: str, tmp_path: Path
) -> None:
    with running_slipway(tmp_path) as slipway, slipway.client("root") as root:
        root.post("/projects", json={"name": "Vision"}).raise_for_status()
        root.post("/tiers", json=TINY).raise_for_status()
        (own,) = root.get("/nodes").json()["items"]
        root.post(f"/nodes/{own['name']}/cordon", json={}).raise_for_status()
        group = group_of(engine, node_image, isolation=isolation, portal_url=slipway.url)
        answer = root.post("/node-groups", json=group)
        assert answer.is_success, answer.text
        job = root.post(JOBS, json=job_body(root, SCRIPT, pool=None)).raise_for_status().json()
        job_id = job["workload"]["id"]

        def machines() -> list[dict[str, Any]]:
            rows: list[dict[str, Any]] = root.get("/node-groups/boxes/machines").json()["items"]
            return rows

        wait_for(lambda: machines() and machines()[0]["handle"], "container", within_s=60)
        # The next control worker finds the container by its label.
        (control,) = [
            child
            for child in children_of(slipway.program.pid)
            if "workers.control" in command_of(child)
        ]
        os.kill(control, signal.SIGKILL)
        ended = wait_for_state(root, job_id, "succeeded", "failed")
        assert ended["state"] == "succeeded", (ended, engine("logs", machines()[0]["handle"]))
        log = log_of(root, job_id)
        assert "in a container" in log
        assert "CapEff:\\t0000000000000000" in log
        assert "sockets []" in log
        assert "not readable /run/slipway/join-token" in log, log
        assert "not readable /node/node.json" in log, log
        assert "unshare refused" in log
        assert "mount refused" in log
        (machine,) = machines()
        (node,) = [row for row in root.get("/nodes").json()["items"] if row["name"] != own["name"]]
        assert node["name"] == machine["name"]
        levels = {row["backend"]: row["level"] for row in node["isolation"]}
        assert levels == {"process": isolation}, node["isolation"]
        wait_for(lambda: machines()[0]["state"] == "released", "release", within_s=120)
        assert len(machines()) == 1
        assert engine("ps", "--all", "--quiet", "--filter", f"name={machine['name']}") == ""
