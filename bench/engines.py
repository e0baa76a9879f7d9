"""From submit to the first step in clusters of others, beside their own commands.

    .venv/bin/python bench/engines.py [--json] [--rounds 5] [--only slurm ray slurm_poll]

The same unmodified script trains on two ranks by DDP. Slipway receives it through its API and
orders an allocation from the engine, whose agents join and start the ranks. The peer is `sbatch`
with `srun torchrun` on the same two nodes of the same Slurm cluster, and a job of Ray's Jobs API
with `torchrun` in the same Ray cluster. Rounds are interleaved; figures are medians of the seconds
until rank 0 has done its first step, by its own clock. The clusters run on this machine. Ray is
installed for it once, below .cache. `slurm_poll` is `bench/engine_poll.py`: the control worker with
1,000 allocations in flight.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "platform"), str(ROOT)]

from bench.needs import DEVELOPMENT, require  # noqa: E402  (the path comes first)

require([*DEVELOPMENT, "torch", "redis"])

from bench.django_for_tests import set_up  # noqa: E402

set_up()

import httpx  # noqa: E402

from tests.integration.pools.jobs import log_of, prepare, submit, wait_for_state  # noqa: E402
from tests.portals import running_slipway  # noqa: E402
from tests.processes import wait_for  # noqa: E402
from tests.ray_cluster import RayCluster, running_ray  # noqa: E402
from tests.slurm_cluster import SlurmCluster, missing_programs, running_slurm  # noqa: E402

SCRIPT = """
import time
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
model = DistributedDataParallel(net)
optimizer = torch.optim.AdamW(model.parameters())
x, y = torch.randn(256, 64), torch.randint(0, 10, (256,))
for step in range(3):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
    if step == 0 and dist.get_rank() == 0:
        print("FIRST", time.time(), flush=True)
dist.barrier()
del model  # first: freed after its process group, it may abort the rank (torch 2.13)
dist.destroy_process_group()
"""
TIER = {
    "name": "One CPU",
    "slug": "cpu-one",
    "resources": {"cpu_millis": 1000, "memory_bytes": 3 * 1024**3},
    "nano_usd_per_hour": 20_000_000,
}
_WITHIN_S = 300.0
Run = Callable[[], float]


def first_step(text: str) -> float | None:
    """Return the time of the first step that a script has printed, None if it has not yet."""
    line = re.search(r"^FIRST (\S+)\n", text, re.MULTILINE)  # whole, or not yet
    return float(line[1]) if line else None


@contextmanager
def slipway_in(pool: dict[str, Any], folder: Path) -> Iterator[Run]:
    """Yield a run of the script by a Slipway that has the pool."""
    with running_slipway(folder) as portal, portal.client("root") as root:
        settings = pool["settings"] | {"portal_url": portal.url}
        prepare(root, {"name": "twin", **pool, "settings": settings})

        def run(**changes: Any) -> float:
            submitted = time.time()
            job = submit(root, script=SCRIPT, **changes)
            end = wait_for_state(root, job, "succeeded", "failed", "stopped", "lost")
            if end["state"] != "succeeded":
                raise SystemExit(f"the job failed: {end['explanation']}\n{log_of(root, job)}")
            at = wait_for(lambda: first_step(log_of(root, job)), "the log", within_s=30)
            assert at is not None
            is_idle = lambda: root.get("/pools/twin").json()["requests"] == 0  # noqa: E731
            wait_for(is_idle, "end of the allocation", within_s=60)
            return at - submitted

        root.post("/tiers", json=TIER).raise_for_status()
        yield lambda: run(nodes=2, tier=TIER["slug"])


@contextmanager
def slurm(folder: Path) -> Iterator[tuple[Run, Run]]:
    """Yield runs by Slipway and by `sbatch` in one cluster of two nodes."""
    if missing := missing_programs():
        raise SystemExit(f"Slurm is not installed: {', '.join(missing)}")
    (folder / "train.py").write_text(SCRIPT)
    with running_slurm(folder / "slurm") as cluster:
        settings = {
            "partition": "main",
            "slurm_conf": str(cluster.conf),
            "folder": str(folder / "nodes"),
        }
        with slipway_in({"engine": "slurm", "settings": settings}, folder / "slipway") as ours:
            yield ours, lambda: sbatch(cluster, folder)


def sbatch(cluster: SlurmCluster, folder: Path) -> float:
    """Run the script by `sbatch` and `torchrun`, as the guide of PyTorch has it."""
    output = folder / f"output-{time.time_ns()}"
    torchrun = f"{sys.executable} -m torch.distributed.run --nnodes 2 --nproc-per-node 1"
    meeting = "--master-addr 127.0.0.1 --master-port $((20000 + SLURM_JOB_ID % 10000))"
    line = f"{torchrun} {meeting} --node-rank $SLURM_PROCID {folder / 'train.py'}"
    script = f"#!/bin/sh\nexport OMP_NUM_THREADS=1\nsrun --unbuffered sh -c '{line}'\n"
    submitted = time.time()
    done = subprocess.run(
        ["sbatch", "--parsable", "-N2", "-n2", "-pmain", f"--output={output}"],
        input=script,
        env=cluster.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"sbatch failed: {done.stderr}")

    def look() -> float | None:
        return first_step(output.read_text(errors="replace")) if output.exists() else None

    at = wait_for(look, "first step", within_s=_WITHIN_S)
    assert at is not None
    is_idle = lambda: not cluster.run("squeue", "--noheader").strip()  # noqa: E731
    wait_for(is_idle, "end of the job", within_s=60)
    return at - submitted


@contextmanager
def ray(folder: Path) -> Iterator[tuple[Run, Run]]:
    """Yield runs by Slipway and by Ray's Jobs API in one cluster of one machine."""
    (folder / "train.py").write_text(SCRIPT)
    with running_ray(folder / "ray", cpus=2) as cluster:
        settings = {
            "address": cluster.address,
            "token_file": str(cluster.token_file),
            "ray_python": str(cluster.python),
            "folder": str(folder / "nodes"),
        }
        with slipway_in({"engine": "ray", "settings": settings}, folder / "slipway") as ours:
            yield ours, lambda: ray_job(cluster, folder)


def ray_job(cluster: RayCluster, folder: Path) -> float:
    """Run the script by `torchrun` as a job of Ray's."""
    headers = {"Authorization": f"Bearer {cluster.token_file.read_text()}"}
    torchrun = f"{sys.executable} -m torch.distributed.run --standalone --nproc-per-node 2"
    with httpx.Client(base_url=cluster.address, headers=headers, timeout=60) as client:
        submitted = time.time()
        body = {"entrypoint": f"env OMP_NUM_THREADS=1 {torchrun} {folder / 'train.py'}"}
        answer = client.post("/api/jobs/", json=body).raise_for_status().json()
        address = f"/api/jobs/{answer['submission_id']}"
        look = lambda: first_step(client.get(f"{address}/logs").json()["logs"])  # noqa: E731
        at = wait_for(look, "first step", within_s=_WITHIN_S)
        assert at is not None
        has_ended = lambda: client.get(address).json()["status"] == "SUCCEEDED"  # noqa: E731
        wait_for(has_ended, "end of the job", within_s=60)
    return at - submitted


ENGINES = {"slurm": slurm, "ray": ray}
POLL = "slurm_poll"


def measure(name: str, rounds: int) -> dict[str, Any]:
    """Measure one engine, both sides in turns after a first round that does not count."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with (
        tempfile.TemporaryDirectory(prefix="engines-") as folder,
        ENGINES[name](Path(folder)) as (ours, theirs),
    ):
        ours(), theirs()
        pairs = [(ours(), theirs()) for _ in range(rounds)]
    ours_s, peer = (statistics.median(side) for side in zip(*pairs, strict=True))
    print(f"{name}: {ours_s:.2f} s, its own command {peer:.2f} s", flush=True)
    ratio = round(ours_s / peer, 4)
    return {"ours": round(ours_s, 3), "peer": round(peer, 3), "ratio": ratio, "unit": "s"}


def poll(size: int) -> dict[str, Any]:
    """Measure a round of the control worker, in a process with settings of its own."""
    script = str(ROOT / "bench" / "engine_poll.py")
    command = [sys.executable, script, "--json", "--size", str(size)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    *lines, last = done.stdout.splitlines()
    print("\n".join(lines), flush=True)
    cases: dict[str, Any] = json.loads(last)["cases"]
    return cases


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    parser.add_argument("--rounds", type=int, default=5)
    names = [*ENGINES, POLL]
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    parser.add_argument("--poll-size", type=int, default=1000)
    arguments = parser.parse_args()
    cases = {
        f"{name}_submit_to_first_step": measure(name, arguments.rounds)
        for name in arguments.only
        if name != POLL
    }
    if POLL in arguments.only:
        cases |= poll(arguments.poll_size)
    if arguments.json:
        print(json.dumps({"bench": "engines", "cases": cases}))


if __name__ == "__main__":
    main()
