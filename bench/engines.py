"""From submit to the first step in clusters of others, beside their own commands.

    .venv/bin/python bench/engines.py [--json] [--rounds 5]
        [--only slurm ray kubernetes slurm_poll]

The same unmodified script trains on two ranks by DDP. Slipway receives it through its API and
orders an allocation from the engine, whose agents join and start the ranks. The peer is `sbatch`
with `srun torchrun` on the same two nodes of the same Slurm cluster, a job of Ray's Jobs API
with `torchrun` in the same Ray cluster, and two pods of the same image with `torchrun` in the same
Kubernetes cluster. Rounds are interleaved; figures are medians of the seconds until rank 0 has done
its first step, by its own clock. The clusters run on this machine. Ray is installed for it once,
below .cache. Without Slurm, or without the servers that `scripts/build-kubernetes` makes, the case
is skipped, and a line says so. `slurm_poll` is `bench/engine_poll.py`: the control worker with
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
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "platform"), str(ROOT)]

from bench.needs import DEVELOPMENT, require  # noqa: E402  (the path comes first)

require([*DEVELOPMENT, "torch", "redis"])

from bench.django_for_tests import set_up  # noqa: E402

set_up()

import httpx  # noqa: E402
from kubernetes.client.exceptions import ApiException  # noqa: E402

from tests.forwarder import forwarded  # noqa: E402
from tests.integration.pools.jobs import log_of, prepare, submit, wait_for_state  # noqa: E402
from tests.kubernetes_cluster import (  # noqa: E402
    IMAGE,
    NAMESPACE,
    USER_ID,
    KubernetesCluster,
    reason_without,
    running_kubernetes,
)
from tests.portals import running_slipway  # noqa: E402
from tests.ports import free_ports  # noqa: E402
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
TIER: dict[str, Any] = {
    "name": "One CPU",
    "slug": "cpu-one",
    "resources": {"cpu_millis": 1000, "memory_bytes": 3 * 1024**3},
    "nano_usd_per_hour": 20_000_000,
}
_WITHIN_S = 300.0
Run = Callable[[], float]


class NotInstalled(Exception):
    """The cluster of a case cannot run on this machine."""


def first_step(text: str) -> float | None:
    """Return the time of the first step that a script has printed, None if it has not yet."""
    line = re.search(r"^FIRST (\S+)\n", text, re.MULTILINE)  # whole, or not yet
    return float(line[1]) if line else None


@contextmanager
def slipway_in(pool: dict[str, Any], folder: Path, *, address: str = "") -> Iterator[Run]:
    """Yield a run of the script by a Slipway that has the pool, and is reached at `address`."""
    (port,) = free_ports(1)
    public: dict[str, Any] = {"SLIPWAY_PUBLIC_URL": f"http://{address}:{port}"} if address else {}
    with ExitStack() as stack:
        portal = stack.enter_context(running_slipway(folder, **public))
        if address:
            stack.enter_context(forwarded(address, {port: portal.installation.portal_port}))
        root = stack.enter_context(portal.client("root"))
        settings = pool["settings"] | {"portal_url": public.get("SLIPWAY_PUBLIC_URL", portal.url)}
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
        raise NotInstalled(f"Slurm is not installed: {', '.join(missing)}")
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


@contextmanager
def kubernetes(folder: Path) -> Iterator[tuple[Run, Run]]:
    """Yield runs by Slipway and by plain pods in one cluster of one node."""
    if reason := reason_without():
        raise NotInstalled(f"no Kubernetes: {reason}")
    with running_kubernetes(folder / "kubernetes") as cluster:
        pool = {"engine": "kubernetes", "settings": cluster.settings(has_shared_folder=True)}
        with slipway_in(pool, folder / "slipway", address=cluster.address) as ours:
            yield ours, lambda: pods(cluster)


def pods(cluster: KubernetesCluster) -> float:
    """Run the script in two pods by `torchrun`, with the image and volumes of the pool.

    The cluster has no DNS, so the first pod writes its address to the volume that they share.
    """
    name = f"torchrun-{time.time_ns()}"
    file = f"/var/lib/slipway/{name}"
    torchrun = f"{sys.executable} -m torch.distributed.run --nnodes 2 --nproc-per-node 1"
    meeting = f"--master-addr $(/bin/busybox cat {file}) --master-port 29500"
    lines = (
        f"[ $RANK = 1 ] || {{ echo $ADDRESS > {file}.new; /bin/busybox mv {file}.new {file}; }}",
        f"until [ -e {file} ]; do /bin/busybox sleep 0.05; done",
        f"exec {torchrun} {meeting} --node-rank $RANK /scripts/train.py",
    )
    data = {"train.py": SCRIPT, "run.sh": "\n".join(lines)}
    submitted = time.time()
    cluster.api.create_namespaced_config_map(NAMESPACE, {"metadata": {"name": name}, "data": data})
    names = [f"{name}-{rank}" for rank in range(2)]
    for rank, pod in enumerate(names):
        body = {"metadata": {"name": pod}, "spec": pod_spec(cluster, name, rank)}
        cluster.api.create_namespaced_pod(NAMESPACE, body)

    def look() -> float | None:
        with suppress(ApiException):  # not started yet
            answer: Any = cluster.api.read_namespaced_pod_log(
                names[0], NAMESPACE, _preload_content=False
            )
            return first_step(answer.data.decode())
        return None

    at = wait_for(look, "first step", within_s=_WITHIN_S)
    assert at is not None

    def have_ended() -> bool:
        ours = [pod for pod in cluster.pods() if pod.metadata.name in names]
        return all(pod.status.phase == "Succeeded" for pod in ours)

    wait_for(have_ended, "end of the pods", within_s=60)
    return at - submitted


def pod_spec(cluster: KubernetesCluster, name: str, rank: int) -> dict[str, Any]:
    """Return a pod of a rank, which runs the files of a ConfigMap."""
    volumes: list[dict[str, Any]] = [{"name": "scripts", "configMap": {"name": name}}]
    mounts = [{"name": "scripts", "mountPath": "/scripts"}]
    for entry in cluster.settings(has_shared_folder=True)["volumes"].split(", "):
        claim, path, *_ = entry.split(":")
        volumes.append({"name": claim, "persistentVolumeClaim": {"claimName": claim}})
        mounts.append({"name": claim, "mountPath": path})
    container = {
        "name": "torchrun",
        "image": IMAGE,
        "command": ["/bin/sh", "/scripts/run.sh"],
        "env": [
            {"name": "RANK", "value": str(rank)},
            {"name": "ADDRESS", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "OMP_NUM_THREADS", "value": "1"},
        ],
        "resources": {"requests": {"cpu": "1", "memory": str(TIER["resources"]["memory_bytes"])}},
        "volumeMounts": mounts,
    }
    return {
        "restartPolicy": "Never",
        "securityContext": {"runAsUser": USER_ID, "runAsGroup": USER_ID},
        "containers": [container],
        "volumes": volumes,
    }


ENGINES = {"slurm": slurm, "ray": ray, "kubernetes": kubernetes}
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
    cases: dict[str, Any] = {}
    for name in arguments.only:
        try:
            if name == POLL:
                cases |= poll(arguments.poll_size)
            else:
                cases[f"{name}_submit_to_first_step"] = measure(name, arguments.rounds)
        except NotInstalled as reason:
            print(f"SKIPPED {name}: {reason}", file=sys.stderr, flush=True)
    if arguments.json:
        print(json.dumps({"bench": "engines", "cases": cases}))


if __name__ == "__main__":
    main()
