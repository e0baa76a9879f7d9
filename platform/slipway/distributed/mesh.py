"""The grid of ranks: this rank's position on it and the torch DeviceMesh of its axes."""

import math
from dataclasses import dataclass

import torch
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from slipway.schemas.strategy import Layout, Sharing, Strategy

# Adjacent ranks, which usually share a machine, differ in the last axis, because tensor parallelism
# communicates in every layer, and a pipeline only between its stages.
PIPELINE, REPLICAS, SHARDS, TENSOR = "pipeline", "replicas", "shards", "tensor"


@dataclass(frozen=True, slots=True)
class MeshPosition:
    """Position of a rank on the grid, from 0 on each axis."""

    pipeline: int
    replica: int
    shard: int
    tensor: int

    def share(self, layout: Layout) -> int:
        """Return which of the `layout.data` shares of a batch this rank computes."""
        return self.replica * layout.shards + self.shard


def mesh_position(rank: int, layout: Layout) -> MeshPosition:
    """Return the position of `rank` on the grid."""
    rest, tensor = divmod(rank, layout.tensor)
    rest, shard = divmod(rest, layout.shards)
    pipeline, replica = divmod(rest, layout.replicas)
    return MeshPosition(pipeline=pipeline, replica=replica, shard=shard, tensor=tensor)


def uses_fully_shard(strategy: Strategy, layout: Layout) -> bool:
    """Return whether FSDP2 holds the parameters.

    It does for zero2 and zero3. It also does for plain copies (ddp, zero1) of a tensor-parallel
    model: DistributedDataParallel cannot hold parameters that are themselves distributed tensors,
    while FSDP2 with one shard only averages gradients, which is the same. Copies of a pipeline
    average theirs after the schedule.
    """
    if layout.data == 1:
        return strategy.offload
    shards = strategy.sharing in (Sharing.ZERO2, Sharing.ZERO3)
    return shards or (layout.tensor > 1 and layout.pipeline == 1)


def build_mesh(strategy: Strategy, layout: Layout, device: torch.device) -> DeviceMesh | None:
    """Return the mesh of the axes that need a group of their own, or None if none does.

    Collective. A group costs connections to every member, so axes of size 1 are left out.
    """
    sizes: dict[str, int] = {}
    if layout.pipeline > 1:
        sizes[PIPELINE] = layout.pipeline
    if layout.replicas > 1:
        sizes[REPLICAS] = layout.replicas
    if uses_fully_shard(strategy, layout):
        sizes[SHARDS] = layout.shards
    if layout.tensor > 1:
        sizes[TENSOR] = layout.tensor
    if set(sizes) <= {REPLICAS}:
        return None  # plain data parallelism uses the group of all ranks
    return init_device_mesh(device.type, tuple(sizes.values()), mesh_dim_names=tuple(sizes))


def axis(mesh: DeviceMesh, *names: str) -> DeviceMesh:
    """Return the part of the mesh along the axes `names` that it has."""
    present = tuple(name for name in names if name in (mesh.mesh_dim_names or ()))
    return mesh[present]


def size_of(mesh: DeviceMesh) -> int:
    """Return how many ranks a mesh spans."""
    return math.prod(mesh.mesh.shape)
