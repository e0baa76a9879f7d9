"""The node of this machine: it joins by itself, runs jobs, and neither loses nor leaves any."""

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.live import Live
from tests.jobs import Jobs
from tests.processes import Installation, children_of, command_of, installation, is_alive, wait_for
from tests.sandboxed import outer_pid

pytestmark = pytest.mark.slow

_LONG = """
import os, signal, sys, time
print("pid", os.getpid(), flush=True)
time.sleep(1000)
"""


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    with installation(tmp_path) as place:
        slipway = Live(place)
        slipway.start(SLIPWAY_EMBEDDED_NODE="true")
        yield slipway


@pytest.fixture
def jobs(live: Live) -> Iterator[Jobs]:
    with live.api() as api:
        yield Jobs(api)


def _agent(live: Live) -> int:
    children = children_of(live.program.pid)
    return next((pid for pid in children if "workers.node_agent" in command_of(pid)), 0)


def test_a_job_runs_on_the_node_that_joined_by_itself(live: Live, jobs: Jobs) -> None:
    script = "import os, sys\nprint('pid', os.getpid(), sys.argv, flush=True)\n"
    job = jobs.submit(script, params={"lr": "0.1"})
    assert jobs.wait_for(job, "succeeded", "failed") == "succeeded"
    wait_for(lambda: "--lr=0.1" in jobs.log(job), "log")
    # A second start is the same node.
    live.program.signal(signal.SIGINT)
    assert live.program.wait() == 0
    live.start()
    nodes = jobs.api.get("/nodes").json()["items"]
    assert [node["state"] for node in nodes] == ["ready"]


def test_nothing_of_ours_stands_in_the_environment_of_the_agent(live: Live) -> None:
    keys = [path.read_text().strip() for path in (live.place.data_dir / "keys").iterdir()]
    environ = Path(f"/proc/{_agent(live)}/environ").read_text()
    names = {entry.partition("=")[0] for entry in environ.split("\0")}
    assert not [name for name in names if name.startswith(("SLIPWAY_", "DJANGO_", "DATABASE_"))]
    assert "REDIS_URL" not in names
    text = environ + command_of(_agent(live))
    assert not [key for key in keys if key and key in text]
    token = live.place.data_dir / "node" / "join-token"
    assert token.stat().st_mode & 0o077 == 0
    assert token.read_text().strip() not in text


def test_a_killed_agent_is_back_and_its_tasks_never_notice(live: Live, jobs: Jobs) -> None:
    job = jobs.submit(_LONG)
    task, first = outer_pid(live.place.data_dir, job, jobs.pid(job)), _agent(live)
    killed_at = time.monotonic()
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: _agent(live) not in (0, first), "another agent", within_s=3)
    live.program.wait_for_text("agent ready again", within_s=10)
    assert time.monotonic() - killed_at < 10
    assert is_alive(task)
    assert jobs.state(job) == "running"
    # The new agent is the one that ends it.
    assert jobs.api.post(f"/projects/vision/jobs/{job}/cancel").is_success
    assert jobs.wait_for(job, "stopped", "failed", "succeeded") == "stopped"
    assert not is_alive(task)


def test_ctrl_c_ends_the_tasks_and_tells_it(live: Live, jobs: Jobs) -> None:
    job = jobs.submit(_LONG)
    task = outer_pid(live.place.data_dir, job, jobs.pid(job))
    live.program.signal(signal.SIGINT)
    assert live.program.wait(20) == 0
    assert not is_alive(task)
    assert "killing it" not in live.program.text()


@pytest.mark.parametrize("agent_first", [False, True])
def test_killing_the_supervisor_leaves_no_task(live: Live, jobs: Jobs, agent_first: bool) -> None:
    job = jobs.submit(_LONG)
    task, agent = outer_pid(live.place.data_dir, job, jobs.pid(job)), _agent(live)
    if agent_first:
        os.kill(agent, signal.SIGKILL)
    live.program.signal(signal.SIGKILL)
    wait_for(lambda: not is_alive(task), "end of the task", within_s=10)
    ended = live.place.data_dir / "node" / "tasks"
    journals = [path.read_text() for path in ended.glob("*/state/journal.jsonl")]
    assert '"reason":"node_lost"' in journals[0]


def test_a_node_that_was_removed_joins_again_at_the_next_start(live: Live, jobs: Jobs) -> None:
    first = jobs.api.get("/nodes").json()["items"][0]
    jobs.api.delete(f"/nodes/{first['name']}").raise_for_status()
    live.program.wait_for_text("joins again at its next start", within_s=30)
    live.program.signal(signal.SIGINT)
    assert live.program.wait() == 0
    live.start()
    second = wait_for(
        lambda: jobs.api.get("/nodes").json()["items"], "a node", within_s=20, every_s=0.2
    )[0]
    assert (second["name"], second["state"]) == (first["name"], "ready")
    assert second["id"] != first["id"]


def test_a_platform_on_another_port_keeps_its_node(place: Installation) -> None:
    live = Live(place)
    live.start(SLIPWAY_EMBEDDED_NODE="true")
    before = json.loads((place.data_dir / "node" / "node.json").read_text())
    live.program.signal(signal.SIGINT)
    assert live.program.wait() == 0
    moved = Installation(place.folder, place.environ["DATABASE_URL"])
    place.portal_port = moved.portal_port
    again = Live(place)
    again.start(SLIPWAY_PORTAL_PORT=str(moved.portal_port))
    again.program.wait_for_text("agent ready")
    after = json.loads((place.data_dir / "node" / "node.json").read_text())
    assert after["node_token"] == before["node_token"]
    assert after["url"] != before["url"]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Installation]:
    with installation(tmp_path) as made:
        yield made
