"""A node dies for good, with what lay on it: its job goes on elsewhere from the copied checkpoint.

Two agents run here with data folders of their own; nothing but the portal's store is shared.
"""

import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.faults.live import Live
from tests.jobs import Jobs
from tests.processes import ROOT, Program, installation, wait_for
from workers.launcher.launch import StateFolder
from workers.launcher.processes import descendants

pytestmark = [pytest.mark.slow, pytest.mark.torch, pytest.mark.timeout(1800)]
EVERY = 10
_TRAIN = f"""
import sys, time
import torch
import slipway.distributed as dist

torch.manual_seed(7)
data = torch.randn(1600, 16, dtype=torch.float64), torch.randint(0, 2, (1600,))
with dist.prepare(
    torch.nn.Linear(16, 2, dtype=torch.float64),
    lambda parameters: torch.optim.Adam(parameters, lr=0.01),
    torch.nn.functional.cross_entropy,
    checkpoints=dist.Checkpoints(every_steps={EVERY}, keep=dist.Retention(last=2)),
) as trainer:
    print("began at", trainer.resume(), flush=True)
    losses = []
    for batch in trainer.shard(data, batch_size=8):
        losses.append(float(trainer.step(batch)))
        time.sleep(float(sys.argv[1]))
print("result", trainer.steps, repr(losses[-1]), flush=True)
"""


class Node:
    """An agent with a folder of its own."""

    def __init__(self, live: Live, name: str, folder: Path) -> None:
        made = live.place.manage("node_token", "--node", name)
        assert made.returncode == 0, made.stderr
        token = folder / f"{name}.token"
        token.write_text(made.stdout)
        self.data_dir = folder / name
        self._agent = Program(
            [
                *(sys.executable, "-m", "workers.node_agent", "--url", live.url, "--name", name),
                *("--data-dir", str(self.data_dir), "--token-file", str(token)),
                *("--python", sys.executable, "--backend", "process", "--address", "127.0.0.1"),
            ],
            env={"PATH": os.environ["PATH"], "PYTHONPATH": f"{ROOT / 'platform'}:{ROOT}"},
            output=folder / f"{name}.log",
        )

    def connected(self) -> "Node":
        self._agent.wait_for_text("is connected to", within_s=120)
        return self

    def die(self) -> None:
        """kill -9 of the agent and of everything it has started, as if the machine were gone."""
        shims = [StateFolder(task / "state").shim() for task in (self.data_dir / "tasks").glob("*")]
        pids = [self._agent.pid, *(shim.pid for shim in shims if shim and shim.is_alive())]
        pids += [below for parent in pids for below in descendants(parent)]
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    """A Slipway without a node of its own."""
    with installation(tmp_path) as place:
        assert place.manage("prepare", "--no-input").returncode == 0
        slipway = Live(place)
        slipway.start()
        yield slipway


@pytest.fixture
def jobs(live: Live) -> Iterator[Jobs]:
    with live.api() as api:
        yield Jobs(api, poll_s=0.2)


@pytest.fixture
def nodes() -> Iterator[list[Node]]:
    """The nodes of a test; nothing of them is left afterwards."""
    started: list[Node] = []
    yield started
    for node in started:
        node.die()


def copied_step(jobs: Jobs, job: str) -> int:
    """Return the step of which a copy is in the store, 0 without one."""
    checkpoints = jobs.api.get(f"/projects/vision/jobs/{job}/checkpoints").json()
    return max((saved["step"] for saved in checkpoints if saved["copied_at"]), default=0)


def result_of(jobs: Jobs, job: str) -> tuple[int, str, str]:
    """Return where the last attempt began, its last step and what it ended with."""
    end = jobs.end_of(job, within_s=240)
    assert end["state"] == "succeeded", jobs.look(job)
    log = jobs.whole_log(job)
    ended = re.findall(r"result (\d+) (\S+)", log)
    assert ended, log
    return int(re.findall(r"began at (\d+)", log)[-1]), *ended[-1]


def test_a_job_goes_on_elsewhere_when_its_node_is_gone(
    live: Live, jobs: Jobs, nodes: list[Node], tmp_path: Path
) -> None:
    nodes.append(Node(live, "one", tmp_path).connected())
    wait_for(lambda: jobs.api.get("/tiers").json()["items"], "tiers of the node", within_s=60)
    job = jobs.submit(_TRAIN, args=["0.15"])
    wait_for(lambda: copied_step(jobs, job) >= 2 * EVERY, "a copy in the store", within_s=120)
    assert jobs.state(job) == "running"
    nodes[0].die()
    known = copied_step(jobs, job)
    nodes.append(Node(live, "two", tmp_path).connected())
    began, *ended = result_of(jobs, job)
    # The portal may have had the last copy whole when the node died in the middle of its answer.
    assert known <= began <= known + EVERY
    assert began % EVERY == 0
    workload = jobs.look(job)["workload"]
    assert workload["attempt"] == 2
    events = jobs.api.get(f"/projects/vision/jobs/{job}/events").json()["items"]
    story = "\n".join(line["message"] for line in events)
    assert "sent its last heartbeat" in story
    assert f"continues from step {began}" in story
    assert f"checkpoint of step {began}, fetched from the store" in story
    undisturbed = jobs.submit(_TRAIN, args=["0"])
    assert result_of(jobs, undisturbed) == (0, *ended)
