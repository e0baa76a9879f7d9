"""Two ranks train while something is killed: the job ends well, from its checkpoint, never twice.

The script keeps a checkpoint every few steps in the folder that outlives an attempt. Each rank
holds a lock there while it runs, so a second one of the same rank would be noticed, and writes down
every step it takes, so that what was lost can be counted.
"""

import os
import signal
from collections.abc import Iterator
from itertools import pairwise

import pytest

from tests.faults.live import Live
from tests.jobs import Jobs
from tests.processes import installation, is_alive, wait_for
from tests.sandboxed import outer_pid

pytestmark = [pytest.mark.integration, pytest.mark.torch]
STEPS, KEPT_EVERY = 60, 5
_TRAIN = f"""
import fcntl, os, pathlib, time
import torch, torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
kept = pathlib.Path(os.environ["SLIPWAY_PERSISTENT_DIR"])
story = (kept / f"story-{{rank}}").open("a", buffering=1)
lock = (kept / f"lock-{{rank}}").open("w")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    story.write("twice 0 0\\n")
attempt = os.environ["SLIPWAY_ATTEMPT"]
checkpoint = kept / "checkpoint.pt"
weight, begin = torch.zeros(3, dtype=torch.float64), 0
if checkpoint.exists():
    weight, begin = torch.load(checkpoint)
for step in range(begin, {STEPS}):
    gradient = torch.full((3,), float(step + rank), dtype=torch.float64)
    dist.all_reduce(gradient)
    weight += gradient
    story.write(f"{{attempt}} {{step}} {{os.getpid()}}\\n")
    print("step", step, "pid", os.getpid(), flush=True)
    if rank == 0 and (step + 1) % {KEPT_EVERY} == 0:
        torch.save((weight, step + 1), kept / "new.pt")
        (kept / "new.pt").replace(checkpoint)
    time.sleep(0.1)
if rank == 0:
    print("weight", weight[0].item(), flush=True)
dist.destroy_process_group()
"""
# What an undisturbed run ends with: two ranks add their step, the second one more.
_WEIGHT = float(sum(2 * step + 1 for step in range(STEPS)))


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A Slipway that all tests here share: what each of them kills is restarted."""
    with installation(tmp_path_factory.mktemp("training")) as place:
        slipway = Live(place)
        slipway.start(SLIPWAY_EMBEDDED_NODE="true")
        yield slipway


@pytest.fixture(scope="module")
def jobs(live: Live) -> Iterator[Jobs]:
    with live.api() as api:
        yield Jobs(api, poll_s=0.1)


class Training:
    """A job of two ranks under way."""

    def __init__(self, live: Live, jobs: Jobs) -> None:
        self.jobs = jobs
        self._data_dir = live.place.data_dir
        self._node = live.place.data_dir / "node"
        self.job = jobs.submit(_TRAIN, procs=2, tier="cpu-large")
        # Beyond its first checkpoint, and far from its end.
        self.wait_for_step(KEPT_EVERY + 2)

    def story(self, rank: int = 0) -> list[tuple[int, int, int]]:
        """What a rank wrote down: attempt, step, process id."""
        paths = list((self._node / "persistent").glob(f"*/{self.job}/story-{rank}"))
        lines = paths[0].read_text().splitlines() if paths else []
        assert not [line for line in lines if line.startswith("twice")], lines
        words = [line.split() for line in lines if len(line.split()) == 3]
        return [(int(attempt), int(step), int(pid)) for attempt, step, pid in words]

    def wait_for_step(self, step: int, *, attempt: int = 1) -> None:
        """Wait until the first rank has taken a step of an attempt."""
        wait_for(
            lambda: any(a >= attempt and s >= step for a, s, _ in self.story()),
            f"step {step}: {self.jobs.look(self.job)}",
            within_s=90,
        )

    def pid(self, rank: int) -> int:
        """The process of a rank."""
        return outer_pid(self._data_dir, self.job, self.story(rank)[-1][2])

    def check(self, *, attempts: int) -> None:
        """It ends well after so many attempts, and none lost more than to its checkpoint."""
        end = self.jobs.end_of(self.job, within_s=120)
        assert end["state"] == "succeeded", self.jobs.look(self.job)
        for rank in (0, 1):
            story = self.story(rank)
            assert len({attempt for attempt, _, _ in story}) == attempts, story
            assert [step for _, step, _ in story][-1] == STEPS - 1
            for (attempt, step, _), (later, again, _) in pairwise(story):
                lost = step + 1 - again
                assert lost == 0 if attempt == later else 0 <= lost <= KEPT_EVERY, story
        wait_for(lambda: "weight" in self.jobs.log(self.job), "the result in the log")
        assert f"weight {_WEIGHT}" in self.jobs.log(self.job)


@pytest.fixture
def training(live: Live, jobs: Jobs) -> Training:
    return Training(live, jobs)


@pytest.mark.parametrize(
    "mark",
    [
        pytest.param("workers.node_agent", marks=pytest.mark.thorough),
        pytest.param("manage.py portal", marks=pytest.mark.slow),
        pytest.param("workers.control", marks=pytest.mark.slow),
    ],
)
def test_ranks_do_not_notice_the_death_of(live: Live, training: Training, mark: str) -> None:
    live.kill(mark)
    training.check(attempts=1)


@pytest.mark.thorough
def test_ranks_do_not_notice_the_death_of_redis(live: Live, training: Training) -> None:
    live.redis().flushall()
    live.kill("redis-server")
    training.check(attempts=1)


@pytest.mark.parametrize("rank", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_a_killed_rank_goes_on_from_the_last_checkpoint(training: Training, rank: int) -> None:
    peer = training.pid(1 - rank)
    os.kill(training.pid(rank), signal.SIGKILL)
    wait_for(lambda: not is_alive(peer), "end of its peer", within_s=10)
    training.wait_for_step(KEPT_EVERY, attempt=2)
    training.check(attempts=2)


@pytest.mark.thorough
def test_everything_killed_at_once_loses_only_to_the_checkpoint(
    live: Live, training: Training
) -> None:
    ranks = [training.pid(0), training.pid(1)]
    live.program.signal(signal.SIGKILL)
    live.program.wait()
    wait_for(lambda: not any(map(is_alive, ranks)), "end of the ranks", within_s=10)
    live.start()
    training.check(attempts=2)


def test_an_error_of_the_script_is_not_tried_again(jobs: Jobs) -> None:
    job = jobs.submit("raise ValueError('no such column: price')\n", procs=2, tier="cpu-large")
    end = jobs.end_of(job, within_s=60)
    assert end["state"] == "failed"
    assert end["reason"] == "exit"
    # Whichever rank came first; the other may have been stopped before it could say the same.
    assert "no such column: price" in jobs.whole_log(job, 0) + jobs.whole_log(job, 1)
    assert jobs.look(job)["workload"]["attempt"] == 1
