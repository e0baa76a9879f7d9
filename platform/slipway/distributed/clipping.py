"""Limiting the norm of all gradients together, wherever their parts lie."""

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate

# As in torch.nn.utils.clip_grad_norm_, so that results are the same.
_EPSILON = 1e-6


class GradientClip:
    """Scales gradients down so that their Euclidean norm is at most `max_norm`.

    The norm is that of the whole model: squares are summed over the axes along which a gradient
    is sharded, and over the ranks of `stages` if the model is cut into a pipeline.
    """

    def __init__(self, max_norm: float, stages: dist.ProcessGroup | None = None) -> None:
        self._max_norm = max_norm
        self._stages = stages

    def __call__(self, parameters: Iterable[nn.Parameter]) -> None:
        """Clip. Collective over the ranks that hold parts of the model."""
        parts: list[torch.Tensor] = []
        sums: dict[tuple[DeviceMesh | None, tuple[int, ...]], torch.Tensor] = {}
        for parameter in parameters:
            gradient = parameter.grad
            if gradient is None:
                continue
            place: tuple[DeviceMesh | None, tuple[int, ...]] = (None, ())
            if isinstance(gradient, DTensor):
                cut = [n for n, p in enumerate(gradient.placements) if not isinstance(p, Replicate)]
                place = (gradient.device_mesh, tuple(cut))
                gradient = gradient.to_local()
            parts.append(gradient)
            square = torch.linalg.vector_norm(gradient, dtype=torch.float64).square()
            sums[place] = sums[place] + square if place in sums else square
        scale = self._scale(sums)
        for part in parts:
            part.mul_(scale.to(part.device, part.dtype))

    def _scale(
        self, sums: dict[tuple[DeviceMesh | None, tuple[int, ...]], torch.Tensor]
    ) -> torch.Tensor:
        total = torch.zeros((), dtype=torch.float64)
        for (mesh, axes), square in sums.items():
            if mesh is not None:
                square = square.to(mesh.device_type)
                for axis in axes:
                    dist.all_reduce(square, group=mesh.get_group(axis))
            total = total.to(square.device) + square
        if self._stages is not None:
            dist.all_reduce(total, group=self._stages)
        return (self._max_norm / (total.sqrt() + _EPSILON)).clamp(max=1.0)
