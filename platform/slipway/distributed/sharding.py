"""Sharding of parameters, gradients and optimizer state over ranks: FSDP2, unit by unit."""

import re
import warnings
from collections.abc import Iterable

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, OffloadPolicy, fully_shard

from slipway.distributed.mesh import REPLICAS, SHARDS, axis
from slipway.schemas.strategy import Sharing, Strategy


def repeated_blocks(model: nn.Module) -> list[nn.Module]:
    """Return the blocks a model repeats: the members of its outermost lists and sequences.

    They are the units to gather and free together: one at a time is in memory as a whole. Single
    layers are none: an in-place function after one (ReLU(inplace=True)) would write to a view that
    FSDP2 watches, and the backward pass would fail (torch 2.13). They are gathered with the rest.
    """
    blocks: list[nn.Module] = []
    for child in model.children():
        if isinstance(child, nn.ModuleList | nn.Sequential):
            blocks += [member for member in child if _is_block(member)]
        else:
            blocks += repeated_blocks(child)
    if not blocks and isinstance(model, nn.Sequential | nn.ModuleList):
        blocks = [member for member in model if _is_block(member)]
    return blocks


def _is_block(module: nn.Module) -> bool:
    has_parts = next(module.children(), None) is not None
    return has_parts and next(module.parameters(), None) is not None


def shard(
    module: nn.Module, blocks: Iterable[nn.Module], strategy: Strategy, mesh: DeviceMesh
) -> FSDPModule:
    """Shard `module` in place over the data axes of the mesh, `blocks` within it one by one.

    zero3 frees the whole weights after a block's forward pass and gathers them again for its
    backward pass. With zero2 they stay between the two (Rajbhandari et al. 2020, §5, and Zhao et
    al. 2023, "PyTorch FSDP"). With one shard nothing is divided and gradients are only averaged.
    """
    inside = set(module.modules())
    data_mesh = axis(mesh, REPLICAS, SHARDS)
    offload = (
        CPUOffloadPolicy(pin_memory=mesh.device_type == "cuda")
        if strategy.offload
        else OffloadPolicy()
    )
    free_after_forward = strategy.sharing is Sharing.ZERO3
    for block in blocks:
        if block in inside and block is not module:
            fully_shard(
                block,
                mesh=data_mesh,
                reshard_after_forward=free_after_forward,
                offload_policy=offload,
            )
    root = fully_shard(
        module, mesh=data_mesh, reshard_after_forward=free_after_forward, offload_policy=offload
    )
    # torch warns that the output of a module may not be modified in place if it is a view, such as
    # the scores of a last linear layer. Neither the loss nor the next stage modifies it.
    name = re.escape(type(root).__name__)
    warnings.filterwarnings("ignore", message=rf"FSDP2-wrapped module \({name}\) returned a view")
    return root
