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


@pytest.fixture(scope="module")
def jobs(
    tmp_path_factory: pytest.TempPathFactory, engine_socket: Path, base_image: str
) -> Iterator[Jobs]:
    """Jobs of a Slipway whose one node offers containers and nothing else."""
    folder = Path(tempfile.mkdtemp(prefix="sl-"))
    with installation(tmp_path_factory.mktemp("docked")) as place:
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
    workload = jobs.look(job)["workload"]
    return f"{workload['explanation']}\n{jobs.log(job)}"


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


@pytest.mark.thorough
def test_a_job_runs_in_the_image_of_its_dockerfile(jobs: Jobs, base_image: str) -> None:
    dockerfile = f"""FROM {base_image}
COPY requirements.txt /requirements.txt
RUN cp /requirements.txt /built.txt && date +%s%N > /stamp
ENV MADE_BY=dockerfile
"""
    files = {"Dockerfile": dockerfile, "requirements.txt": "iniconfig\n"}
    script = (
        "import os\nprint(open('/built.txt').read(), open('/stamp').read(), os.environ['MADE_BY'])"
    )
    job = jobs.submit(script, files=files, backend="docker")
    assert jobs.end_of(job, within_s=120)["state"] == "succeeded", said_of(jobs, job)
    log = jobs.whole_log(job)
    assert log.split()[::2] == ["iniconfig", "dockerfile"]
    path = f"/projects/vision/environments/{jobs.look(job)['environment']}"
    assert jobs.api.get(path).json()["dockerfile"] == dockerfile
    build_log = jobs.api.get(f"{path}/log", params={"node": "docked"}).text
    assert "COPY requirements.txt" in build_log
    assert "Ready: " in build_log
    # Other code, the same image: only files that the Dockerfile copies count.
    again = jobs.submit(f"{script}\nprint('again')", files=files, backend="docker")
    assert jobs.end_of(again, within_s=60)["state"] == "succeeded", said_of(jobs, again)
    assert jobs.whole_log(again) == f"{log}again\n"
    assert jobs.look(again)["environment"] == jobs.look(job)["environment"]
    assert [build["state"] for build in jobs.api.get(path).json()["builds"]] == ["ready"]
    fails = {"Dockerfile": f"FROM {base_image}\nRUN echo no luck; exit 3\n"}
    failed = jobs.submit(script, files=fails, backend="docker")
    end = jobs.end_of(failed, within_s=60)
    assert end["reason"] == "environment_failed", said_of(jobs, failed)
    assert "line 2 of the Dockerfile" in end["explanation"]
    assert "status 3" in end["explanation"]
