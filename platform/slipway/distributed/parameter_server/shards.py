"""Division of the parameters over servers, and their layout in messages."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence

import torch

from slipway.distributed.optimizers import deal

Described = Mapping[str, tuple[torch.Size, torch.dtype]]


class ShardLayout:
    """The parameters of one server in the order in which their bytes travel.

    Wide element types come first, so that every parameter begins at a multiple of its own width.
    """

    def __init__(self, described: Described) -> None:
        ordered = sorted(described.items(), key=lambda item: (-item[1][1].itemsize, item[0]))
        self.described = dict(ordered)
        text = json.dumps([[name, list(shape), str(dtype)] for name, (shape, dtype) in ordered])
        self.digest = hashlib.sha256(text.encode()).digest()
        self.size = sum(shape.numel() * dtype.itemsize for shape, dtype in self.described.values())


class PackedShard:
    """A buffer with the bytes of a shard, and a tensor for each parameter in it."""

    def __init__(self, layout: ShardLayout) -> None:
        self.buffer = bytearray(layout.size)
        self.tensors: dict[str, torch.Tensor] = {}
        offset = 0
        for name, (shape, dtype) in layout.described.items():
            count = shape.numel()
            self.tensors[name] = (
                torch.frombuffer(self.buffer, dtype=dtype, count=count, offset=offset).view(shape)
                if count
                else torch.empty(shape, dtype=dtype)
            )
            offset += count * dtype.itemsize

    def fill(self, values: Mapping[str, torch.Tensor | None]) -> None:
        """Copy values in, from any device. A missing one counts as zeros."""
        for name, tensor in self.tensors.items():
            value = values.get(name)
            if value is None:
                tensor.zero_()
            else:
                tensor.copy_(value)


def divide(described: Described, servers: int) -> list[ShardLayout]:
    """Return what each server holds: whole parameters, about as many elements each."""
    names = list(described)
    owners = deal([described[name][0].numel() for name in names], servers)
    return [
        ShardLayout({n: described[n] for n, by in zip(names, owners, strict=True) if by == server})
        for server in range(servers)
    ]


def describe(parameters: Iterable[tuple[str, torch.Tensor]]) -> Described:
    """Return shape and element type of each parameter."""
    return {name: (parameter.shape, parameter.dtype) for name, parameter in parameters}


_TYPES = {
    str(dtype): dtype
    for dtype in (
        torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32,
        torch.int16, torch.int8, torch.uint8, torch.bool,
    )
}  # fmt: skip


def describe_state(tensors: Mapping[str, torch.Tensor], plain: object) -> bytes:
    """Return the JSON that describes optimizer state: what its bytes are, and its numbers."""
    listed = [[name, list(t.shape), str(t.dtype)] for name, t in tensors.items()]
    return json.dumps({"tensors": listed, "plain": plain}).encode()


def read_description(text: bytes) -> tuple[ShardLayout, Mapping[str, object]]:
    """Return the layout and the numbers in a description, or raise ValueError when it is wrong."""
    value = json.loads(text)
    if not isinstance(value, dict) or not isinstance(value.get("plain"), dict):
        raise ValueError("The description of optimizer state is not an object.")
    described: dict[str, tuple[torch.Size, torch.dtype]] = {}
    for name, shape, dtype in value["tensors"]:
        if dtype not in _TYPES or not _is_shape(shape):
            raise ValueError(f'The description of optimizer state has no valid shape for "{name}".')
        described[str(name)] = (torch.Size(shape), _TYPES[dtype])
    return ShardLayout(described), value["plain"]


def _is_shape(shape: object) -> bool:
    return isinstance(shape, Sequence) and all(isinstance(n, int) and 0 <= n < 2**48 for n in shape)
