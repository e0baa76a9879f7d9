"""From submit to the first optimisation step: Slipway against torchrun, the same script, one run.

    python bench/launch.py [--rounds N] [--json]

Rounds are interleaved, so that both sides meet the same machine; figures are medians. The agent is a
real one in a process of its own; what stands for the portal answers it over HTTP.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "platform"), str(ROOT)]

from tests.workers.fake_portal import GIB, make_spec  # noqa: E402
from tests.workers.machines import Site, eventually  # noqa: E402

RANKS = 2
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
        print("FIRST", time.time(), flush=True)
if dist.get_rank() == 0:
    print("STEP", sorted(times)[len(times) // 2], flush=True)
dist.destroy_process_group()
"""


def read(output: str, word: str) -> float:
    """The figure a script printed behind a word."""
    return next(float(line.split()[1]) for line in output.splitlines() if line.startswith(word))


def by_torchrun(folder: Path, steps: int) -> tuple[float, float]:
    """Seconds to the first step, and for one step."""
    (folder / "train.py").write_text(SCRIPT)
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
        *("--nproc-per-node", str(RANKS), "train.py", str(steps)),
    ]
    environment = {"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1"}
    submitted = time.time()
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    return read(done.stdout, "FIRST") - submitted, read(done.stdout, "STEP")


def by_slipway(site: Site, steps: int, *, warm: bool) -> tuple[float, float]:
    """The same through an agent, from the wish to the step."""
    submitted = time.time()
    digest = site.portal.state.add_snapshot({"train.py": SCRIPT})
    spec = make_spec(
        *("python", "train.py", str(steps)),
        snapshot=digest,
        procs=RANKS,
        warm="torch" if warm else None,
        resources={"cpu_millis": RANKS * 1000, "memory_bytes": 4 * GIB},
    )
    key = site.portal.state.want(site.new_name(), spec)
    end = site.end_of(key, within_s=300)
    if end.reason != "completed":
        raise SystemExit(f"the job failed: {end}")
    eventually(lambda: "STEP" in site.portal.state.log_of(key))
    log = site.portal.state.log_of(key)
    return read(log, "FIRST") - submitted, read(log, "STEP")


def wait_until_warm(site: Site) -> None:
    """Wait for the warm process."""
    site.portal.state.prewarm = ["torch"]
    site.portal.state.bump()
    eventually(
        lambda: any(warm.state == "ready" for warm in site.portal.state.heartbeats[-1].warm),
        within_s=120,
    )


def measure(rounds: int, steps: int) -> dict[str, Any]:
    """Run everything; answers the cases."""
    found: dict[str, list[tuple[float, float]]] = {"torchrun": [], "warm": [], "cold": []}
    site = Site()
    try:
        wait_until_warm(site)
        with tempfile.TemporaryDirectory() as folder:
            for number in range(rounds):
                found["torchrun"].append(by_torchrun(Path(folder), steps))
                found["warm"].append(by_slipway(site, steps, warm=True))
                found["cold"].append(by_slipway(site, steps, warm=False))
                line = ", ".join(f"{way} {seen[-1][0]:.2f} s" for way, seen in found.items())
                print(f"round {number + 1}: first step after {line}")
    finally:
        site.close()
    first = {way: statistics.median(one[0] for one in seen) for way, seen in found.items()}
    step = {way: statistics.median(one[1] for one in seen) for way, seen in found.items()}
    return {
        "submit_to_first_step_warm": case(first["warm"], first["torchrun"], "s"),
        "submit_to_first_step_cold": case(first["cold"], first["torchrun"], "s"),
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
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    cases = measure(options.rounds, options.steps)
    for name, found in cases.items():
        print(f"{name:28} {found['ours']} / {found['peer']} {found['unit']} = {found['ratio']}")
    if options.json:
        print(json.dumps({"bench": "launch", "cases": cases}))


if __name__ == "__main__":
    main()
