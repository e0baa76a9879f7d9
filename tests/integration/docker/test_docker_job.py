"""A job that asks for a container, through everything that is real: portal, agent, engine."""

import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from portal.config.local_node import base_environment
from tests.faults.live import Live
from tests.jobs import Jobs
from tests.processes import Program, installation, wait_for

pytestmark = pytest.mark.docker
_SCRIPT = """
import os, pathlib, iniconfig
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], flush=True)
print("in a container", pathlib.Path("/.dockerenv").exists(), "as", os.getuid() or "root")
"""


@pytest.fixture
def jobs(tmp_path: Path, engine_socket: Path, base_image: str) -> Iterator[Jobs]:
    """Jobs of a Slipway whose one node offers containers and nothing else."""
    folder = Path(tempfile.mkdtemp(prefix="sl-"))
    with installation(tmp_path) as place:
        assert place.manage("prepare", "--no-input").returncode == 0
        live = Live(place)
        live.start()
        token = folder / "token"
        token.write_text(place.manage("node_token", "--node", "docked").stdout)
        (folder / "nothing.txt").touch()
        agent = Program(
            [
                *(sys.executable, "-m", "workers.node_agent", "--url", live.url),
                *("--name", "docked", "--data-dir", str(folder / "node")),
                *("--token-file", str(token), "--address", "127.0.0.1", "--backend", "docker"),
                *("--docker-socket", str(engine_socket), "--docker-image", base_image),
                *("--requirements", str(folder / "nothing.txt"), "--stop-tasks-on-exit"),
            ],
            env=base_environment(dict(os.environ)),  # how packages are reached here
            output=folder / "agent.log",
        )
        agent.wait_for_text("is connected to", within_s=60)
        with live.api() as api:
            wait_for(lambda: api.get("/tiers").json()["items"], "tiers of the node")
            yield Jobs(api, poll_s=0.2)
        agent.signal(signal.SIGTERM)
        assert agent.wait(30) == 0


def said_of(jobs: Jobs, job: str) -> str:
    """Everything a page would say of a job."""
    found = jobs.look(job)["workload"]
    return f"{found['explanation']}\n{jobs.log(job)}"


@pytest.mark.thorough
def test_a_job_runs_in_a_container_of_its_own_requirements(jobs: Jobs) -> None:
    job = jobs.submit(_SCRIPT, procs=2, backend="docker", requirements="iniconfig==2.1.0")
    assert jobs.end_of(job, within_s=180)["state"] == "succeeded", said_of(jobs, job)
    for rank in (0, 1):
        log = jobs.whole_log(job, rank)
        assert f"rank {rank} of 2" in log
        assert "in a container True as " in log
        assert "as root" not in log
    environment = jobs.look(job)["environment"]
    path = f"/projects/vision/environments/{environment}"
    built = jobs.api.get(f"{path}/log", params={"node": "docked"})
    assert "iniconfig" in built.text
    refused = jobs.api.post(
        "/projects/vision/jobs",
        json={"script": "train.py", "snapshot": jobs.look(job)["snapshot"]["digest"]},
    )
    assert refused.json()["code"] == "no_such_backend", "it has no processes to offer"
