"""A job gets a node on EC2 and the node leaves: an emulated API, and the user data run for real."""

import base64
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from portal.compute.adapters.engines.agent_command import clean_environment
from tests.integration.node_groups.emulator import (
    KEYS,
    REGION,
    TEMPLATE,
    emulator,
    prepare_account,
)
from tests.integration.pools.jobs import (
    JOBS,
    TINY,
    job_body,
    wait_for_state,
    workload_of,
)
from tests.portals import running_slipway
from tests.processes import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.slow]
__all__ = ["emulator"]
# As systemd does, but in the foreground.
_SYSTEMD_RUN = """#!/bin/sh
while case "$1" in --*) true ;; *) false ;; esac; do shift; done
exec "$@"
"""


def instances(client: Any, *states: str) -> list[dict[str, Any]]:
    """Return the instances in some states."""
    filters = [{"Name": "instance-state-name", "Values": list(states)}]
    reservations = client.describe_instances(Filters=filters)["Reservations"]
    return [instance for row in reservations for instance in row["Instances"]]


def user_data_of(client: Any, instance: dict[str, Any]) -> str:
    """Return the program that an instance would run."""
    answer = client.describe_instance_attribute(
        InstanceId=instance["InstanceId"], Attribute="userData"
    )
    return base64.b64decode(answer["UserData"]["Value"]).decode()


@contextlib.contextmanager
def booted(script: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Run user data as cloud-init would, on this machine."""
    fake = folder / "bin" / "systemd-run"
    fake.parent.mkdir(parents=True)
    fake.write_text(_SYSTEMD_RUN, "utf-8")
    fake.chmod(0o755)
    variables = clean_environment()
    variables["PATH"] = f"{fake.parent}:{variables['PATH']}"
    with (folder / "console.log").open("w") as console:
        process = subprocess.Popen(
            ["/bin/sh"],
            stdin=subprocess.PIPE,
            stdout=console,
            stderr=console,
            text=True,
            env=variables,
            start_new_session=True,
        )
    assert process.stdin is not None
    process.stdin.write(script)
    process.stdin.close()
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        process.wait(30)


def make_group(
    root: httpx.Client, emulator: str, portal_url: str, folder: Path, **settings: Any
) -> None:
    """Create a group of at most one instance, whose agents run on this machine."""
    group = {
        "name": "cloud",
        "provisioner": "ec2",
        "settings": {
            "region": REGION,
            "launch_template": TEMPLATE,
            "endpoint": emulator,
            "portal_url": portal_url,
            "python": sys.executable,
            "task_python": sys.executable,
            "folder": str(folder),
            **settings,
        },
        "resources": {"cpu_millis": 250, "memory_bytes": 512 * 2**20},
        "max_nodes": 1,
        "idle_grace_s": 10,
        "nano_usd_per_hour": 1_006_000_000,
    }
    answer = root.post("/node-groups", json=group)
    assert answer.is_success, answer.text


def test_a_job_gets_an_instance_which_is_terminated_when_it_is_idle(
    emulator: str, tmp_path: Path
) -> None:
    client = prepare_account(emulator)
    with running_slipway(tmp_path / "slipway", **KEYS) as slipway, slipway.client("root") as root:
        root.post("/projects", json={"name": "Vision"}).raise_for_status()
        root.post("/tiers", json=TINY).raise_for_status()
        (own,) = root.get("/nodes").json()["items"]
        root.post(f"/nodes/{own['name']}/cordon", json={}).raise_for_status()
        make_group(root, emulator, slipway.url, tmp_path / "machine")
        job = root.post(JOBS, json=job_body(root, pool=None)).raise_for_status().json()
        job_id = job["workload"]["id"]
        wait_for(lambda: instances(client, "running"), "instance", within_s=60)
        (instance,) = instances(client, "running")
        with booted(user_data_of(client, instance), tmp_path / "cloud-init"):
            ended = wait_for_state(root, job_id, "succeeded", "failed")
            assert ended["state"] == "succeeded", ended
            wait_for(lambda: instances(client, "terminated"), "termination", within_s=120)
            assert instances(client, "running") == []
        (machine,) = root.get("/node-groups/cloud/machines").json()["items"]
        assert machine["handle"] == instance["InstanceId"]
        wait_for(
            lambda: root.get("/node-groups/cloud").json()["draining"] == 0, "release", within_s=60
        )


def test_work_of_an_interrupted_spot_instance_goes_on_on_the_next_one(
    emulator: str, tmp_path: Path
) -> None:
    client = prepare_account(emulator)
    with running_slipway(tmp_path / "slipway", **KEYS) as slipway, slipway.client("root") as root:
        root.post("/projects", json={"name": "Vision"}).raise_for_status()
        root.post("/tiers", json=TINY).raise_for_status()
        (own,) = root.get("/nodes").json()["items"]
        root.post(f"/nodes/{own['name']}/cordon", json={}).raise_for_status()
        make_group(root, emulator, slipway.url, tmp_path / "machine", spot=True)
        body = job_body(root, "import time; time.sleep(600)", pool=None)
        job_id = root.post(JOBS, json=body).raise_for_status().json()["workload"]["id"]
        wait_for(lambda: instances(client, "running"), "instance", within_s=60)
        (first,) = instances(client, "running")
        assert first["InstanceLifecycle"] == "spot"
        with booted(user_data_of(client, first), tmp_path / "first") as agent:
            wait_for_state(root, job_id, "running", "failed")
            # Amazon takes it back.
            os.killpg(agent.pid, signal.SIGKILL)
            client.terminate_instances(InstanceIds=[first["InstanceId"]])
            # What ran on the instance ends with it.
            subprocess.run(
                [
                    *(sys.executable, "-m", "workers.node_agent.cleanup"),
                    str(tmp_path / "machine" / "node"),
                ],
                env=clean_environment(),
                check=True,
                timeout=60,
            )
        wait_for(lambda: instances(client, "running"), "next instance", within_s=240)
        (second,) = instances(client, "running")
        assert second["InstanceId"] != first["InstanceId"]
        wait_for(
            lambda: "node of group cloud is starting" in workload_of(root, job_id)["explanation"],
            "reason",
            within_s=60,
        )
        rows = root.get("/node-groups/cloud/machines").json()["items"]
        assert rows[-1]["handle"] == first["InstanceId"]
        assert rows[-1]["state"] in ("draining", "released")
