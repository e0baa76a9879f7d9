"""The network goes away under a job of two nodes: it is noticed, and the job goes on from its
checkpoint once the network is back, never twice at once.

The folder that outlives an attempt is one for both nodes, as shared storage mounted there makes it.
"""

import subprocess
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.faults.live import Live
from tests.integration.training.cable import Cable, join
from tests.jobs import Jobs
from tests.processes import wait_for

pytestmark = [
    pytest.mark.slow,
    pytest.mark.integration,
    pytest.mark.torch,
    pytest.mark.timeout(1800),
]
STEPS, KEPT_EVERY = 60, 5
_TRAIN = f"""
import datetime, fcntl, os, pathlib, sys, time
import torch, torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=int(sys.argv[1])))
rank = dist.get_rank()
kept = pathlib.Path(os.environ["SLIPWAY_PERSISTENT_DIR"])
story = (kept / f"story-{{rank}}").open("a", buffering=1)
lock = (kept / f"lock-{{rank}}").open("w")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    story.write("twice 0\\n")
attempt = os.environ["SLIPWAY_ATTEMPT"]
checkpoint = kept / "checkpoint.pt"
weight, begin = torch.zeros(3, dtype=torch.float64), 0
if checkpoint.exists():
    weight, begin = torch.load(checkpoint)
for step in range(begin, {STEPS}):
    gradient = torch.full((3,), float(step + rank), dtype=torch.float64)
    dist.all_reduce(gradient)
    weight += gradient
    story.write(f"{{attempt}} {{step}}\\n")
    if rank == 0 and (step + 1) % {KEPT_EVERY} == 0:
        torch.save((weight, step + 1), kept / "new.pt")
        (kept / "new.pt").replace(checkpoint)
    dist.barrier()
    time.sleep(0.1)
print("weight", weight[0].item(), flush=True)
dist.destroy_process_group()
"""
_WEIGHT = float(sum(2 * step + 1 for step in range(STEPS)))


@pytest.fixture
def shared(tmp_path: Path, cable: Cable) -> Iterator[Path]:
    """A folder that both nodes have as theirs for what outlives attempts."""
    folder = tmp_path / "shared"
    folder.mkdir()
    mounted = []
    for name in cable.spaces:
        place = tmp_path / name / "persistent"
        place.mkdir(parents=True, mode=0o700)
        subprocess.run(["mount", "--bind", str(folder), str(place)], check=True)
        mounted.append(place)
    yield folder
    for place in mounted:
        subprocess.run(["umount", str(place)], check=False)


@pytest.fixture
def jobs(live: Live, cable: Cable, shared: Path, tmp_path: Path) -> Iterator[Jobs]:
    """Jobs on two nodes."""
    for name in cable.spaces:
        join(live, cable, name, tmp_path)
    with live.api() as api:
        yield Jobs(api, poll_s=0.2)


def story_of(shared: Path, job: str, rank: int = 0) -> list[tuple[int, int]]:
    """What a rank wrote down: attempt and step."""
    paths = list(shared.glob(f"*/{job}/story-{rank}"))
    lines = paths[0].read_text().splitlines() if paths else []
    assert not [line for line in lines if line.startswith("twice")], lines
    return [(int(attempt), int(step)) for attempt, step in (line.split() for line in lines)]


def check(jobs: Jobs, job: str, shared: Path) -> None:
    """The job ends well in its second attempt, and lost no more than to its checkpoint."""
    assert jobs.end_of(job, within_s=90)["state"] == "succeeded", jobs.look(job)
    for rank in (0, 1):
        story = story_of(shared, job, rank)
        assert {attempt for attempt, _ in story} == {1, 2}
        assert story[-1] == (2, STEPS - 1)
        for (attempt, step), (later, again) in pairwise(story):
            lost = step + 1 - again
            assert lost == 0 if attempt == later else 0 <= lost <= KEPT_EVERY, story
        assert f"weight {_WEIGHT}" in jobs.whole_log(job, rank)


def events_of(jobs: Jobs, job: str) -> str:
    """The story of a job as its page tells it."""
    events = jobs.api.get(f"/projects/vision/jobs/{job}/events").json()["items"]
    return "\n".join(event["message"] for event in events)


def test_a_node_that_is_cut_off_is_noticed_within_a_minute(
    jobs: Jobs, cable: Cable, shared: Path
) -> None:
    job = jobs.submit(_TRAIN, args=["600"], nodes=2, tier="cpu-large")
    wait_for(lambda: story_of(shared, job)[KEPT_EVERY + 2 :], "steps", within_s=60)
    cable.cut_off("right")
    cut_s = time.monotonic()
    wait_for(
        lambda: "node right" in events_of(jobs, job).lower(), "word of it", within_s=75, every_s=1
    )
    # A lease, and the seconds until a reconciler looks.
    assert time.monotonic() - cut_s <= 65
    cable.cut_off("right", up=True)
    check(jobs, job, shared)


def test_a_cut_between_the_nodes_is_not_the_script_s_fault(
    jobs: Jobs, cable: Cable, shared: Path
) -> None:
    job = jobs.submit(_TRAIN, args=["4"], nodes=2, tier="cpu-large")
    wait_for(lambda: story_of(shared, job)[KEPT_EVERY + 2 :], "steps", within_s=60)
    cable.cut()
    wait_for(
        lambda: "Running again" in events_of(jobs, job), "word of it", within_s=40, every_s=0.5
    )
    cable.cut(up=True)
    assert "lost its connection to ranks on other nodes" in events_of(jobs, job)
    check(jobs, job, shared)
