"""A process is killed while jobs stand in every phase: waiting, starting, saving, stopping.

One kill meets four jobs, each in another phase, and none of them may be lost, run twice at once or
end otherwise than it would have: what runs ends in its first attempt, what stops ends as stopped,
what waits starts when there is room.
"""

import os
import signal
from collections.abc import Callable, Iterator

import pytest

from tests.faults.live import Live
from tests.jobs import Jobs
from tests.processes import installation, wait_for
from tests.sandboxed import outer_pid

pytestmark = [
    pytest.mark.slow,
    pytest.mark.integration,
    pytest.mark.torch,
    pytest.mark.timeout(1800),
]
# What each script begins with: who is here twice at once says so.
_ONCE = """
import fcntl, os, pathlib, signal, sys, time
kept = pathlib.Path(os.environ["SLIPWAY_PERSISTENT_DIR"])
lock = (kept / "lock").open("w")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    print("TWICE", flush=True)
with (kept / "attempts").open("a") as attempts:
    attempts.write("x")
print("attempt", (kept / "attempts").stat().st_size, "pid", os.getpid(), flush=True)
"""
_QUICK = _ONCE + "print('done', flush=True)\n"
# Asked to end, it takes its time; a second signal would find it still at it.
_STOPPING = (
    _ONCE
    + """
def leave(*_):
    print("leaving", flush=True)
    time.sleep(2)
    print("left", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
print("ready", flush=True)
while True:
    time.sleep(0.05)
"""
)
# Writes checkpoints without a pause: whenever it is met, it is saving.
_SAVING = (
    _ONCE
    + """
import torch
import slipway.distributed as dist
data = torch.randn(2400, 64), torch.randint(0, 2, (2400,))
with dist.prepare(
    torch.nn.Linear(64, 2),
    lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    torch.nn.functional.cross_entropy,
) as trainer:
    print("began at", trainer.resume(), flush=True)
    for batch in trainer.shard(data, batch_size=8):
        trainer.step(batch)
        trainer.save(wait=True)
        print("saved", trainer.steps, flush=True)
print("done", flush=True)
"""
)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A Slipway with the node of this machine; whatever is killed there is started again."""
    with installation(tmp_path_factory.mktemp("phases")) as place:
        slipway = Live(place)
        slipway.start(SLIPWAY_EMBEDDED_NODE="true")
        yield slipway


@pytest.fixture(scope="module")
def jobs(live: Live) -> Iterator[Jobs]:
    """Jobs, with a tier so small that several of them run beside each other."""
    with live.api() as api:
        slot = {"cpu_millis": 100, "memory_bytes": 1024**3}
        tier = {"name": "Slot", "slug": "slot", "resources": slot, "nano_usd_per_hour": 1}
        wait_for(lambda: api.get("/tiers").json()["items"], "tiers of the node", within_s=60)
        api.post("/tiers", json=tier).raise_for_status()
        yield Jobs(api, poll_s=0.1)


def kill_rank(live: Live, jobs: Jobs, saving: str) -> None:
    """kill -9 of the process that saves."""
    os.kill(outer_pid(live.place.data_dir, saving, jobs.pid(saving)), signal.SIGKILL)


def kill_redis(live: Live, jobs: Jobs, saving: str) -> None:
    """Everything in Redis is gone, and Redis too."""
    live.redis().flushall()
    live.kill("redis-server")


def kill_child(mark: str) -> Callable[[Live, Jobs, str], None]:
    """kill -9 of one process of the platform."""
    return lambda live, jobs, saving: live.kill(mark)


@pytest.mark.parametrize(
    ("kill", "attempts"),
    [
        pytest.param(kill_rank, 2, id="rank"),
        pytest.param(kill_child("workers.node_agent"), 1, id="agent"),
        pytest.param(kill_child("manage.py portal"), 1, id="portal"),
        pytest.param(kill_child("workers.control"), 1, id="control"),
        pytest.param(kill_redis, 1, id="redis"),
    ],
)
def test_jobs_in_every_phase_outlive(
    live: Live, jobs: Jobs, kill: Callable[[Live, Jobs, str], None], attempts: int
) -> None:
    saving = jobs.submit(_SAVING, tier="slot")
    stopping = jobs.submit(_STOPPING, tier="slot")
    wait_for(lambda: "ready" in jobs.log(stopping), "the job that will stop", within_s=60)
    wait_for(lambda: "saved 3" in jobs.log(saving), "checkpoints", within_s=60)
    waiting = jobs.submit(_QUICK, tier="cpu-large")
    jobs.api.post(f"/projects/vision/jobs/{stopping}/cancel").raise_for_status()
    wait_for(lambda: "leaving" in jobs.log(stopping), "the job that stops", within_s=20)
    # Whatever the kill meets of these: queued, placed, starting, running.
    starting = [jobs.submit(_QUICK, tier="slot") for _ in range(3)]
    saved = len([line for line in jobs.log(saving).splitlines() if line.startswith("saved")])
    assert jobs.state(stopping) == "stopping"
    assert jobs.state(waiting) == "queued"

    kill(live, jobs, saving)

    end = jobs.end_of(stopping, within_s=60)
    assert (end["state"], end["reason"], end["attempt"]) == ("stopped", "user", 1)
    assert "left" in jobs.whole_log(stopping)
    for job in starting:
        end = jobs.end_of(job, within_s=180)
        # Who had not run yet may be started once more; nobody runs twice at once.
        assert (end["state"], end["attempt"] <= 2) == ("succeeded", True)
        assert "TWICE" not in jobs.whole_log(job)
    end = jobs.end_of(saving, within_s=180)
    assert (end["state"], end["attempt"]) == ("succeeded", attempts)
    log = jobs.whole_log(saving)
    assert "TWICE" not in log
    assert "done" in log
    began = [int(line.split()[-1]) for line in log.splitlines() if line.startswith("began at")]
    assert began[-1] >= (saved if attempts > 1 else 0)
    assert jobs.end_of(waiting, within_s=180)["state"] == "succeeded"
