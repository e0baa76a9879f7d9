"""Tensor parallelism: single layers divided over ranks, by a plan."""

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor.parallel import parallelize_module

from slipway.distributed.mesh import TENSOR, axis
from slipway.distributed.tensor_plan import TensorPlan


def split_layers(module: nn.Module, plan: TensorPlan, mesh: DeviceMesh) -> None:
    """Divide the layers of `module` that the plan names over the tensor axis, in place."""
    part = plan.restricted_to({name for name, _ in module.named_modules()})
    tensor_mesh = axis(mesh, TENSOR)
    if part.styles:
        parallelize_module(module, tensor_mesh, dict(part.styles))
    for name, count in part.heads:
        holder = module.get_submodule(name)
        setattr(holder, count, getattr(holder, count) // tensor_mesh.size())
