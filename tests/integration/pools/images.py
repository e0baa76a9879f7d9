"""Jobs in images of projects: a node that builds them, and jobs with a Dockerfile."""

import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from portal.config.local_node import base_environment
from tests.image_registry import ImageRegistry
from tests.integration.pools.jobs import JOBS, workload_of
from tests.portal.training.jobs import tar_of
from tests.portals import RunningPortal
from tests.processes import Program, wait_for

TIER = {
    "name": "For images",
    "slug": "for-images",
    "resources": {"cpu_millis": 250, "memory_bytes": 2**30},
    "nano_usd_per_hour": 20_000_000,
}


@contextmanager
def running_builder(portal: RunningPortal, registry: ImageRegistry) -> Iterator[None]:
    """Yield with a node that has a Docker engine, and the account of the registry."""
    folder = Path(tempfile.mkdtemp(prefix="sl-"))
    (folder / "token").write_text(
        portal.installation.manage("node_token", "--node", "builder").stdout
    )
    agent = Program(
        [
            *(sys.executable, "-m", "workers.node_agent", "--url", portal.url),
            *("--name", "builder", "--data-dir", str(folder / "node"), "--backend", "docker"),
            *("--token-file", str(folder / "token"), "--address", "127.0.0.1"),
            *("--docker-socket", os.environ["TEST_DOCKER_SOCKET"], "--stop-tasks-on-exit"),
            *("--registry-auth", str(registry.accounts)),
        ],
        env=base_environment(dict(os.environ)),
        output=folder / "agent.log",
    )
    agent.wait_for_text("is connected to", within_s=120)
    yield
    agent.signal(signal.SIGTERM)
    agent.wait(30)


def submit(root: Any, script: str, dockerfile: str, **changes: Any) -> str:
    """Submit a script beside a Dockerfile, and return the id of the job."""
    base = os.environ["TEST_DOCKER_IMAGE"]
    files = {"train.py": script.encode(), "Dockerfile": dockerfile.replace("BASE", base).encode()}
    headers = {"Content-Type": "application/octet-stream"}
    sent = root.post("/projects/vision/snapshots", content=tar_of(files), headers=headers)
    digest = sent.raise_for_status().json()["digest"]
    body = {"script": "train.py", "snapshot": digest, "tier": "for-images", "pool": "twin"}
    answer = root.post(JOBS, json=body | changes)
    assert answer.is_success, answer.text
    job_id: str = answer.json()["workload"]["id"]
    return job_id


def end_of(root: Any, job_id: str) -> dict[str, Any]:
    """Wait for the end of a job, with a build before it."""
    ends = {"succeeded", "failed", "stopped", "lost"}
    wait_for(lambda: workload_of(root, job_id)["state"] in ends, "end of the job", within_s=600)
    return workload_of(root, job_id)
