"""Small messages between the ranks of a group: bytes and JSON, never pickles."""

import json
from typing import Any

import torch
import torch.distributed as dist


def gather_bytes(payload: bytes, group: dist.ProcessGroup | None = None) -> list[bytes]:
    """Return what each rank of the group gave, in the order of ranks. Collective, on the CPU."""
    world = dist.get_world_size(group)
    if world == 1:
        return [payload]
    size = torch.tensor([len(payload)], dtype=torch.int64)
    sizes = [torch.zeros_like(size) for _ in range(world)]
    dist.all_gather(sizes, size, group=group)
    longest = max(1, *(int(other.item()) for other in sizes))
    zeros = torch.zeros(longest, dtype=torch.uint8)
    if payload:
        zeros[: len(payload)] = torch.frombuffer(bytearray(payload), dtype=torch.uint8)
    gathered = [torch.zeros_like(zeros) for _ in range(world)]
    dist.all_gather(gathered, zeros, group=group)
    return [
        bytes(other[: int(length.item())].tolist())
        for other, length in zip(gathered, sizes, strict=True)
    ]


def gather_json(value: Any, group: dist.ProcessGroup | None = None) -> list[Any]:
    """Return the value of each rank of the group, in the order of ranks. Collective."""
    return [json.loads(text) for text in gather_bytes(json.dumps(value).encode(), group)]


def from_first(payload: bytes, group: dist.ProcessGroup | None = None) -> bytes:
    """Return what the first rank of the group gave. Collective, on the CPU."""
    first = payload if dist.get_rank(group) == 0 else b""
    return gather_bytes(first, group)[0]
