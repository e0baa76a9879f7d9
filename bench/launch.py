"""From submit to the first optimisation step: Slipway against torchrun, with the same script.

    python bench/launch.py [--rounds N] [--json]

Everything is included: a running platform receives the code and the job through its API, queues
the job and places it on the node of this machine. The agent forks it from a warm process, or starts
it cold. Rounds are interleaved, so that both sides run under the same conditions. Figures are
medians. Recovery is the time from `kill -9` of a rank to the first step of the next attempt. Its
peer is a fresh warm start. The step time is the median of the second half of the steps.
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

from bench.needs import DEVELOPMENT, require  # noqa: E402  (the path comes first)

require([*DEVELOPMENT, "torch", "redis"])

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
    """Return the figure that a script printed after a word."""
    return next(float(line.split()[1]) for line in output.splitlines() if line.startswith(word))


def time_torchrun(folder: Path, steps: int) -> tuple[float, float]:
    """Run torchrun. Returns the seconds to the first step, and the seconds of a step."""
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
    with tempfile.TemporaryDirectory() as folder, installation(Path(folder)) as site:
        live = Live(site)
        live.start(SLIPWAY_EMBEDDED_NODE="true")
        live.program.wait_for_text("process is warm", within_s=120)
        with live.api() as api:
            yield Jobs(api, poll_s=POLL_S), site.data_dir


def create_cold_project(jobs: Jobs) -> Jobs:
    """Create a project whose jobs start cold, because one of its secrets takes effect at start."""
    project = jobs.api.post("/projects", json={"name": "Cold"})
    project.raise_for_status()
    slug = project.json()["slug"]
    secret = jobs.api.put(f"/projects/{slug}/secrets/LC_TIME", json={"value": "C.UTF-8"})
    secret.raise_for_status()
    return Jobs(jobs.api, project=slug, poll_s=POLL_S)


def time_slipway(jobs: Jobs, steps: int) -> tuple[float, float]:
    """Run the same script as a job. The time includes the upload of its code."""
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
    """Return the seconds from killing a rank to the first step of the next attempt."""

    def first_step(after: float) -> tuple[float, int] | None:
        lines = [line.split() for line in jobs.log(job).splitlines() if line.startswith("FIRST")]
        return next(((float(at), int(pid)) for _, at, pid in lines if float(at) > after), None)

    job = jobs.submit(SCRIPT, args=["1000000"], procs=RANKS, tier="cpu-large")
    before = wait_for(lambda: first_step(0), "a first step", within_s=60, every_s=0.25)
    assert before is not None
    killed = time.time()
    os.kill(outer_pid(data_dir, job, before[1]), signal.SIGKILL)
    after_kill = wait_for(
        lambda: first_step(killed), "another first step", within_s=60, every_s=0.25
    )
    assert after_kill is not None
    jobs.api.post(f"/projects/vision/jobs/{job}/cancel").raise_for_status()
    jobs.end_of(job)
    return after_kill[0] - killed


def measure(rounds: int, steps: int) -> dict[str, Any]:
    """Run all measurements and return the cases."""
    times: dict[str, list[tuple[float, float]]] = {"torchrun": [], "warm": [], "cold": []}
    recoveries: list[float] = []
    with platform() as (jobs, data_dir), tempfile.TemporaryDirectory() as folder:
        cold = create_cold_project(jobs)
        for number in range(rounds):
            times["torchrun"].append(time_torchrun(Path(folder), steps))
            times["warm"].append(time_slipway(jobs, steps))
            times["cold"].append(time_slipway(cold, steps))
            recoveries.append(recovery(jobs, data_dir))
            line = ", ".join(f"{kind} {results[-1][0]:.2f} s" for kind, results in times.items())
            line += f", recovery after a kill {recoveries[-1]:.2f} s"
            print(f"round {number + 1}: first step after {line}", flush=True)
    first = {
        kind: statistics.median(pair[0] for pair in results) for kind, results in times.items()
    }
    step = {kind: statistics.median(pair[1] for pair in results) for kind, results in times.items()}
    return {
        "submit_to_first_step_warm": case(first["warm"], first["torchrun"], "s"),
        "submit_to_first_step_cold": case(first["cold"], first["torchrun"], "s"),
        "recovery_vs_warm_start": case(statistics.median(recoveries), first["warm"], "s"),
        "step_time": case(step["warm"] * 1e3, step["torchrun"] * 1e3, "ms"),
    }


def case(ours: float, peer: float, unit: str) -> dict[str, Any]:
    """Return one case of the result."""
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
    for name, figures in cases.items():
        sides = f"{figures['ours']} / {figures['peer']} {figures['unit']}"
        print(f"{name:28} {sides} = {figures['ratio']}")
    if options.json:
        print(json.dumps({"bench": "launch", "cases": cases}))


if __name__ == "__main__":
    main()
