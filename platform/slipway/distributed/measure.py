"""Finding the facts that a strategy is chosen by: sizes, memory, the speed of the network."""

import os
import time
from itertools import chain

import torch
import torch.distributed as dist
from torch import nn

from slipway.distributed.choice import Facts
from slipway.distributed.cuts import possible_stages
from slipway.distributed.errors import StrategyNotPossible
from slipway.distributed.optimizers import OptimizerFactory
from slipway.distributed.ranks import Ranks
from slipway.distributed.sharding import repeated_blocks
from slipway.distributed.tensor_plan import find_plan

_PROBE_BYTES = 8 * 2**20
_ROUNDS = 3


def measure_facts(
    model: nn.Module, factory: OptimizerFactory, ranks: Ranks, device: torch.device
) -> Facts:
    """Return the facts of this job, equal on every rank. Collective, well under a second."""
    parameters = list(model.parameters())
    weights = sum(p.numel() * p.element_size() for p in parameters)
    trained = [p for p in parameters if p.requires_grad]
    gradients = sum(p.numel() * p.element_size() for p in trained)
    blocks = repeated_blocks(model) or [model]
    largest = max(sum(p.numel() * p.element_size() for p in b.parameters()) for b in blocks)
    # The rank with the least memory and the slowest link decide, equally on all ranks.
    limits = torch.tensor(
        [
            float(_device_memory(device, ranks)),
            float(_host_memory() // max(1, ranks.local_world_size)),
            _bandwidth(device, ranks.world_size),
            float(ranks.local_world_size),
        ],
        dtype=torch.float64,
    )
    if ranks.world_size > 1:
        dist.all_reduce(limits, dist.ReduceOp.MIN)
    per_machine = int(limits[3].item())
    return Facts(
        world_size=ranks.world_size,
        ranks_per_machine=per_machine if ranks.world_size % per_machine == 0 else 1,
        parameter_bytes=weights,
        gradient_bytes=gradients,
        optimizer_bytes=round(gradients * _state_per_weight(factory, trained)),
        block_bytes=largest,
        device_memory_bytes=int(limits[0].item()),
        host_memory_bytes=int(limits[1].item()),
        bandwidth=limits[2].item(),
        stages=possible_stages(model),
        tensor_size=_tensor_size(model, per_machine),
    )


def _state_per_weight(factory: OptimizerFactory, trained: list[nn.Parameter]) -> float:
    """Return how many bytes of state the optimizer keeps per byte of weights, by trying it."""
    dtype = trained[0].dtype if trained else torch.float32
    sample = nn.Parameter(torch.zeros(64, 64, dtype=dtype))
    sample.grad = torch.zeros_like(sample)
    optimizer = factory([sample])
    optimizer.step()
    values = chain.from_iterable(state.values() for state in optimizer.state.values())
    held = sum(v.nbytes for v in values if isinstance(v, torch.Tensor) and v.dim())
    return held / sample.nbytes


def _device_memory(device: torch.device, ranks: Ranks) -> int:
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return _host_memory() // max(1, ranks.local_world_size)


def _host_memory() -> int:
    """Return what this process may use: the limit of its control group, else the machine's."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            with open(path, encoding="ascii") as file:  # noqa: PTH123 - a kernel file, not a path
                total = min(total, int(file.read()))
        except (OSError, ValueError):
            continue
    return total


def _bandwidth(device: torch.device, world_size: int) -> float:
    """Return how many bytes a second a rank can send in an all-reduce, by doing a few."""
    if world_size == 1:
        return float("inf")
    sample = torch.zeros(_PROBE_BYTES // 4, device=device)
    best = float("inf")
    for _ in range(_ROUNDS + 1):  # the first round also connects the ranks
        started = time.perf_counter()
        dist.all_reduce(sample)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        best = min(best, time.perf_counter() - started)
    return 2 * (world_size - 1) / world_size * _PROBE_BYTES / best


def _tensor_size(model: nn.Module, per_machine: int) -> int:
    """Return the largest power of two within a machine that the layers can be split over."""
    size = 1
    while size * 2 <= per_machine:
        try:
            find_plan(model, size * 2)
        except StrategyNotPossible:
            break
        size *= 2
    return size
