"""From submit to the first optimisation step: Slipway against torchrun, the same script, one run.

    python bench/launch.py [--rounds N] [--json]

Everything is included: a started platform takes in the code and the job over its API, queues it,
places it on the node of this machine, whose agent forks it from a warm process (or starts it cold).
Rounds are interleaved, so that both sides meet the same machine; figures are medians. A recovery is
the time from `kill -9` of a rank to the first step of the next attempt, beside a fresh warm start.
The time of a step is that of the steady state: the median of the later half of them.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "platform"), str(ROOT)]

from tests.faults.live import Live  # noqa: E402
from tests.jobs import Jobs  # noqa: E402
from tests.processes import installation, wait_for  # noqa: E402
from tests.sandboxed import outer_pid  # noqa: E402

RANKS = 2
# Long, because each poll costs the portal as much as several steps.
POLL_S = 1.0
SCRIPT = """
import os, sys, time
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
model = DistributedDataParallel(net)
optimizer = torch.optim.AdamW(model.parameters())
x, y = torch.randn(256, 64), torch.randint(0, 10, (256,))
times = []
for step in range(int(sys.argv[1])):
    begun = time.perf_counter()
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
    times.append(time.perf_counter() - begun)
    if step == 0 and dist.get_rank() == 0:
        print("FIRST", time.time(), os.getpid(), flush=True)
if dist.get_rank() == 0:
    steady = sorted(times[len(times) // 2 :])
    print("STEP", steady[len(steady) // 2], flush=True)
dist.barrier()
del model  # first: freed after its process group, it may abort the rank (torch 2.13)
dist.destroy_process_group()
"""


def read(output: str, word: str) -> float:
    """The figure a script printed behind a word."""
    return next(float(line.split()[1]) for line in output.splitlines() if line.startswith(word))


def time_torchrun(folder: Path, steps: int) -> tuple[float, float]:
    """Seconds to the first step, and for one step."""
    (folder / "train.py").write_text(SCRIPT)
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
        *("--nproc-per-node", str(RANKS), "train.py", str(steps)),
    ]
    environment = {"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1"}
    submitted = time.time()
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"torchrun failed:\n{done.stderr[-4000:]}")
    return read(done.stdout, "FIRST") - submitted, read(done.stdout, "STEP")


@contextmanager
def platform() -> Iterator[tuple[Jobs, Path]]:
    """Start Slipway with its node, and wait until a process is warm."""
    with tempfile.TemporaryDirectory() as folder, installation(Path(folder)) as place:
        live = Live(place)
        live.start(SLIPWAY_EMBEDDED_NODE="true")
        live.program.wait_for_text("process is warm", within_s=120)
        with live.api() as api:
            yield Jobs(api, poll_s=POLL_S), place.data_dir


def create_cold_project(jobs: Jobs) -> Jobs:
    """Make a project whose jobs start cold: one of its variables is read as Python starts."""
    made = jobs.api.post("/projects", json={"name": "Cold"})
    made.raise_for_status()
    slug = made.json()["slug"]
    kept = jobs.api.put(f"/projects/{slug}/secrets/LC_TIME", json={"value": "C.UTF-8"})
    kept.raise_for_status()
    return Jobs(jobs.api, project=slug, poll_s=POLL_S)


def time_slipway(jobs: Jobs, steps: int) -> tuple[float, float]:
    """The same as a job, from the upload of its code to the step."""
    submitted = time.time()
    # The largest tier is the whole machine, which torchrun uses too.
    job = jobs.submit(SCRIPT, args=[str(steps)], procs=RANKS, tier="cpu-large")
    end = jobs.end_of(job, within_s=300)
    if end["state"] != "succeeded":
        raise SystemExit(f"the job failed: {end}\n{jobs.log(job)}")
    log = wait_for(
        lambda: text if "STEP" in (text := jobs.log(job)) else "", "the whole log", within_s=20
    )
    return read(log, "FIRST") - submitted, read(log, "STEP")


def recovery(jobs: Jobs, data_dir: Path) -> float:
    """Seconds from the death of a rank to the next first step of its job."""

    def begun(after: float) -> tuple[float, int] | None:
        lines = [line.split() for line in jobs.log(job).splitlines() if line.startswith("FIRST")]
        return next(((float(at), int(pid)) for _, at, pid in lines if float(at) > after), None)

    job = jobs.submit(SCRIPT, args=["1000000"], procs=RANKS, tier="cpu-large")
    first = wait_for(lambda: begun(0), "a first step", within_s=60, every_s=0.25)
    assert first is not None
    killed = time.time()
    os.kill(outer_pid(data_dir, job, first[1]), signal.SIGKILL)
    again = wait_for(lambda: begun(killed), "another first step", within_s=60, every_s=0.25)
    assert again is not None
    jobs.api.post(f"/projects/vision/jobs/{job}/cancel").raise_for_status()
    jobs.end_of(job)
    return again[0] - killed


def measure(rounds: int, steps: int) -> dict[str, Any]:
    """Run everything; answers the cases."""
    found: dict[str, list[tuple[float, float]]] = {"torchrun": [], "warm": [], "cold": []}
    recoveries: list[float] = []
    with platform() as (jobs, data_dir), tempfile.TemporaryDirectory() as folder:
        cold = create_cold_project(jobs)
        for number in range(rounds):
            found["torchrun"].append(time_torchrun(Path(folder), steps))
            found["warm"].append(time_slipway(jobs, steps))
            found["cold"].append(time_slipway(cold, steps))
            recoveries.append(recovery(jobs, data_dir))
            line = ", ".join(f"{way} {seen[-1][0]:.2f} s" for way, seen in found.items())
            line += f", again after a kill {recoveries[-1]:.2f} s"
            print(f"round {number + 1}: first step after {line}", flush=True)
    first = {way: statistics.median(one[0] for one in seen) for way, seen in found.items()}
    step = {way: statistics.median(one[1] for one in seen) for way, seen in found.items()}
    return {
        "submit_to_first_step_warm": case(first["warm"], first["torchrun"], "s"),
        "submit_to_first_step_cold": case(first["cold"], first["torchrun"], "s"),
        "recovery_vs_warm_start": case(statistics.median(recoveries), first["warm"], "s"),
        "step_time": case(step["warm"] * 1e3, step["torchrun"] * 1e3, "ms"),
    }


def case(ours: float, peer: float, unit: str) -> dict[str, Any]:
    """One line of the result."""
    return {
        "ours": round(ours, 4),
        "peer": round(peer, 4),
        "ratio": round(ours / peer, 4),
        "unit": unit,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    cases = measure(options.rounds, options.steps)
    for name, found in cases.items():
        print(f"{name:28} {found['ours']} / {found['peer']} {found['unit']} = {found['ratio']}")
    if options.json:
        print(json.dumps({"bench": "launch", "cases": cases}))


if __name__ == "__main__":
    main()
