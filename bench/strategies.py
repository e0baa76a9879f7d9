"""Steps per second of each strategy, compared with the same strategy in plain torch.

    python bench/strategies.py [--json] [--rounds 12] [--steps 4] [--seconds 8] [NAME ...]

Needs torch. Starts torchrun with two ranks (three for the parameter server). In each rank both
versions train the same small transformer, alternating every few steps, so that noise of the machine
affects both. The figure is the median over turns of the slowest rank's mean step. The time of a
case is limited, so that all end within three minutes on two cores.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "platform"), str(ROOT)]

from bench.needs import require  # noqa: E402  (the path comes first)

require(["torch"])

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402
from torch.distributed.optim import ZeroRedundancyOptimizer  # noqa: E402
from torch.distributed.pipelining import PipelineStage  # noqa: E402
from torch.distributed.pipelining.schedules import (  # noqa: E402
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
)
from torch.distributed.tensor.parallel import (  # noqa: E402
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn import functional  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

import slipway.distributed  # noqa: E402

WIDTH, HEADS, BLOCKS, CONTEXT, CLASSES, BATCH = 192, 4, 4, 32, 10, 32
MICROBATCHES = 4
WARM_UP_TURNS = 2
Step = Callable[[torch.Tensor, torch.Tensor], object]
# Strategy of Slipway, and number of ranks it is measured on.
STRATEGIES = {
    "ddp": ("ddp", 2),
    "zero1": ("zero1", 2),
    "zero2": ("zero2", 2),
    "zero3": ("zero3", 2),
    "pipeline_gpipe": ("pipeline:gpipe", 2),
    "pipeline_1f1b": ("pipeline:1f1b", 2),
    "pipeline_interleaved": ("pipeline:interleaved", 2),
    "tensor": ("tensor", 2),
    "ps_sync": ("ps=1:sync", 3),
}


class Attention(nn.Module):
    """Self-attention with separate projections."""

    def __init__(self) -> None:
        super().__init__()
        self.num_heads = HEADS
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Mix positions of x, shape (batch, position, width)."""
        batch, positions, _ = x.shape
        heads = [
            part(x).view(batch, positions, self.num_heads, -1).transpose(1, 2)
            for part in (self.q, self.k, self.v)
        ]
        mixed = functional.scaled_dot_product_attention(*heads)
        output: torch.Tensor = self.o(mixed.transpose(1, 2).reshape(batch, positions, -1))
        return output


class Block(nn.Module):
    """One transformer layer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return x of the same shape."""
        x = x + self.attention(self.norm1(x))
        output: torch.Tensor = x + self.down(functional.gelu(self.up(self.norm2(x))))
        return output


class Head(nn.Module):
    """Mean pooling over positions, and the scores of classes."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return scores, shape (batch, classes)."""
        scores: torch.Tensor = self.out(x.mean(1))
        return scores


def build_model() -> nn.Sequential:
    """Return the transformer, 1.8 million weights in float32."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), *(Block() for _ in range(BLOCKS)), Head())


def make_optimizer(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    """Return the optimizer of both versions."""
    return torch.optim.AdamW(parameters, lr=1e-3)


def _loop(module: nn.Module, optimizer: torch.optim.Optimizer) -> Step:
    def step(x: torch.Tensor, y: torch.Tensor) -> None:
        optimizer.zero_grad()
        functional.cross_entropy(module(x), y).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step


def _peer_ddp() -> Step:
    module = DistributedDataParallel(build_model(), gradient_as_bucket_view=True)
    return _loop(module, make_optimizer(list(module.parameters())))


def _peer_zero1() -> Step:
    module = DistributedDataParallel(build_model(), gradient_as_bucket_view=True)
    optimizer = ZeroRedundancyOptimizer(
        module.parameters(), optimizer_class=torch.optim.AdamW, lr=1e-3
    )
    return _loop(module, optimizer)


def _peer_fsdp(free: bool) -> Step:
    model = build_model()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in list(model)[1:]:
        fully_shard(block, mesh=mesh, reshard_after_forward=free)
    fully_shard(model, mesh=mesh, reshard_after_forward=free)
    return _loop(model, make_optimizer(list(model.parameters())))


def _peer_tensor() -> Step:
    model = build_model()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in model:
        if isinstance(block, Block):
            block.attention.num_heads //= dist.get_world_size()
            plan: dict[str, ParallelStyle] = {
                f"attention.{name}": ColwiseParallel() for name in "qkv"
            }
            plan |= {"attention.o": RowwiseParallel()}
            plan |= {"up": ColwiseParallel(), "down": RowwiseParallel()}
            parallelize_module(block, mesh, plan)
    return _loop(model, make_optimizer(list(model.parameters())))


def _peer_pipeline(kind: str) -> Step:
    model, rank = build_model(), dist.get_rank()
    cuts = [0, 2, 3, 4, 6] if kind == "interleaved" else [0, 3, 6]
    count = len(cuts) - 1
    numbers = list(range(rank, count, 2))
    parts = [nn.Sequential(*list(model)[cuts[n] : cuts[n + 1]]) for n in numbers]
    stages = [
        PipelineStage(part, n, count, torch.device("cpu"))
        for part, n in zip(parts, numbers, strict=True)
    ]
    loss = functional.cross_entropy
    schedule: ScheduleGPipe | Schedule1F1B | ScheduleInterleaved1F1B
    if kind == "interleaved":
        schedule = ScheduleInterleaved1F1B(list(stages), MICROBATCHES, loss_fn=loss)
    elif kind == "gpipe":
        schedule = ScheduleGPipe(stages[0], MICROBATCHES, loss_fn=loss)
    else:
        schedule = Schedule1F1B(stages[0], MICROBATCHES, loss_fn=loss)
    optimizer = make_optimizer([p for part in parts for p in part.parameters()])
    run: Callable[..., object] = schedule.step

    def step(x: torch.Tensor, y: torch.Tensor) -> None:
        optimizer.zero_grad()
        if rank == 0:
            run(x, return_outputs=False)
        else:
            run(target=y, return_outputs=False)
        optimizer.step()

    return step


def _peer_server() -> Step:
    """A parameter server over gloo: gather gradients, update, broadcast."""
    model, rank, world = build_model(), dist.get_rank(), dist.get_world_size()
    parameters = list(model.parameters())
    optimizer = make_optimizer(parameters)
    server, sizes = world - 1, [p.numel() for p in parameters]
    gathered = [torch.empty(sum(sizes)) for _ in range(world)]

    def step(x: torch.Tensor, y: torch.Tensor) -> None:
        flat = torch.zeros(sum(sizes))
        if rank != server:
            optimizer.zero_grad()
            functional.cross_entropy(model(x), y).backward()  # type: ignore[no-untyped-call]
            flat = torch.cat([p.grad.flatten() for p in parameters if p.grad is not None])
        dist.gather(flat, gathered if rank == server else None, dst=server)
        if rank == server:
            mean = torch.stack(gathered[:server]).mean(0)
            for p, part in zip(parameters, torch.split(mean, sizes), strict=True):
                p.grad = part.view_as(p)
            optimizer.step()
        weights = torch.cat([p.detach().flatten() for p in parameters])
        dist.broadcast(weights, src=server)
        with torch.no_grad():
            for p, part in zip(parameters, torch.split(weights, sizes), strict=True):
                p.copy_(part.view_as(p))

    return step


PEERS: dict[str, Callable[[], Step]] = {
    "ddp": _peer_ddp,
    "zero1": _peer_zero1,
    "zero2": lambda: _peer_fsdp(free=False),
    "zero3": lambda: _peer_fsdp(free=True),
    "pipeline_gpipe": lambda: _peer_pipeline("gpipe"),
    "pipeline_1f1b": lambda: _peer_pipeline("1f1b"),
    "pipeline_interleaved": lambda: _peer_pipeline("interleaved"),
    "tensor": _peer_tensor,
    "ps_sync": _peer_server,
}


def measure(name: str, *, rounds: int, steps: int, seconds: float) -> dict[str, float]:
    """Return the median steps per second of both versions."""
    strategy, _ = STRATEGIES[name]
    trainer = slipway.distributed.prepare(
        build_model(),
        make_optimizer,
        functional.cross_entropy,
        strategy=strategy,
        microbatches=MICROBATCHES if "pipeline" in name else None,
    )
    is_worker = not (name == "ps_sync" and trainer.rank == trainer.world_size - 1)
    size = BATCH // trainer.share.count
    x, y = torch.randn(size, CONTEXT, WIDTH), torch.randint(CLASSES, (size,))

    def ours(x: torch.Tensor, y: torch.Tensor) -> None:
        if is_worker:
            trainer.step((x, y))

    versions: dict[str, Step] = {"ours": ours, "peer": PEERS[name]()}
    rates_by_version: dict[str, list[float]] = {"ours": [], "peer": []}
    began = time.perf_counter()
    for turn in range(rounds + WARM_UP_TURNS):
        # The second version benefits from warm caches, so the order alternates as well.
        for version in sorted(versions, reverse=bool(turn % 2)):
            dist.barrier()
            started = time.perf_counter()
            for _ in range(steps):
                versions[version](x, y)
            dist.barrier()
            if turn >= WARM_UP_TURNS:
                rates_by_version[version].append(steps / (time.perf_counter() - started))
        if _is_time_up(began, seconds) and turn >= WARM_UP_TURNS:
            break
    trainer.close()
    return {version: statistics.median(rates) for version, rates in rates_by_version.items()}


def _is_time_up(started: float, seconds: float) -> bool:
    """Return whether the time limit of a case has passed, by the clock of rank 0."""
    over = torch.tensor([float(time.perf_counter() - started > seconds)])
    dist.broadcast(over, src=0)
    return bool(over.item())


def work(arguments: argparse.Namespace) -> None:
    """Measure on one rank. Rank 0 prints a line of JSON for each case."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for name in arguments.names:
        rates = measure(
            name, rounds=arguments.rounds, steps=arguments.steps, seconds=arguments.seconds
        )
        if dist.get_rank() == 0:
            sys.stdout.write(json.dumps({"case": name, **rates}) + "\n")
            sys.stdout.flush()
        dist.barrier()
    dist.destroy_process_group()


def launch(names: list[str], ranks: int, arguments: argparse.Namespace) -> list[dict[str, object]]:
    """Measure cases under torchrun and return the results that rank 0 printed."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", str(ranks), __file__, "--worker", *names]
    command += ["--rounds", str(arguments.rounds), "--steps", str(arguments.steps)]
    command += ["--seconds", str(arguments.seconds)]
    done = subprocess.run(
        command,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def main() -> None:
    """Print a table, and with --json one line of JSON at the end."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"cases to run: {', '.join(STRATEGIES)}"
    )
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    parser.add_argument("--rounds", type=int, default=12, help="turns of each version")
    parser.add_argument("--steps", type=int, default=4, help="steps per turn")
    parser.add_argument("--seconds", type=float, default=8, help="time limit per case")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(STRATEGIES):
        parser.error(
            f"no such case: {', '.join(sorted(unknown))}; choose from {', '.join(STRATEGIES)}"
        )
    if arguments.worker:
        work(arguments)
        return
    names = arguments.names or list(STRATEGIES)
    rows: list[dict[str, object]] = []
    for ranks in sorted({STRATEGIES[name][1] for name in names}):
        rows += launch([name for name in names if STRATEGIES[name][1] == ranks], ranks, arguments)
    cases: dict[str, dict[str, float | str]] = {}
    print(f"{'strategy':<22}{'ours/s':>10}{'peer/s':>10}{'ratio':>8}")
    for row in rows:
        ours, peer = float(str(row["ours"])), float(str(row["peer"]))
        cases[str(row["case"])] = {
            "ours": round(ours, 3),
            "peer": round(peer, 3),
            "ratio": round(ours / peer, 4),
            "unit": "steps/s",
        }
        print(f"{row['case']!s:<22}{ours:>10.2f}{peer:>10.2f}{ours / peer:>8.3f}")
    if arguments.json:
        print(json.dumps({"bench": "strategies", "cases": cases}))


if __name__ == "__main__":
    main()
