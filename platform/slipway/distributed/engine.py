"""Interface of strategies for the trainer, and their shared parts: voting and model state."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from slipway.distributed.batches import Batch, Share
from slipway.distributed.optimizers import Optimizers, Plain

LossFunction = Callable[[Any, Any], torch.Tensor]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a step.

    `loss` is the mean loss of the global batch (0-dimensional, detached). `stop` is true if any
    rank asked to stop.
    """

    loss: torch.Tensor
    stop: bool


@dataclass(slots=True)
class EngineState:
    """This rank's part of the state of training, by canonical names.

    Tensors are the live ones, whole or distributed. `plain` is what JSON can carry.
    """

    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    plain: Plain = field(default_factory=dict)


class StoredState(Protocol):
    """A checkpoint to restore from."""

    plain: Mapping[str, Any]

    def names(self, prefix: str) -> Iterator[str]:
        """Yield the names of the stored tensors that begin with `prefix`."""

    def shape(self, name: str) -> tuple[torch.Size, torch.dtype]:
        """Return the whole shape and the type of a stored tensor."""

    def read(self, into: Mapping[str, torch.Tensor]) -> None:
        """Fill tensors, whole or distributed, with what is stored under their names."""


class Engine(Protocol):
    """One strategy at work on one rank. All methods but `snapshot` are collective."""

    @property
    def share(self) -> Share:
        """Part of every global batch that this rank computes."""

    @property
    def batch_multiple(self) -> int:
        """Divisor of the number of samples in every global batch."""

    @property
    def saves(self) -> bool:
        """True if this rank takes part in writing checkpoints."""

    def step(self, batch: Batch, weight: float, stop: bool) -> Outcome:
        """Train on this rank's share of a batch.

        `weight` is 1 where all shares are of one size. A larger share counts for more. `stop`
        notifies the others that this rank was asked to stop.
        """

    def measure(self, batch: Batch, function: LossFunction | None) -> torch.Tensor | None:
        """Return the mean of `function(output, target)` over this rank's share of a batch.

        The function is the loss by default. The result is None on ranks that do not see the output.
        """

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return the whole model on the CPU on rank 0, nothing elsewhere."""

    def snapshot(self) -> EngineState:
        """Return what a checkpoint must hold of this rank."""

    def restore(self, stored: StoredState) -> None:
        """Load model and optimizer state."""

    def close(self) -> None:
        """Release peers, threads and connections."""


class Vote:
    """Sums the loss over ranks and learns whether any of them wants to stop, once a step.

    Both travel while the backward pass computes, so they cost next to nothing. On a GPU the wish
    to stop travels through the CPU's group: reading it must not wait for the GPU.
    """

    def __init__(self, device: torch.device, world_size: int, *, repeats: int = 1) -> None:
        """`repeats` is on how many ranks the same share is counted (tensor parallelism)."""
        self._device = device
        self._alone = world_size == 1
        self._repeats = repeats
        self._works: list[dist.Work | None] = []
        self._sum = torch.zeros(1)
        self._wish: torch.Tensor | None = None

    def cast(self, loss: torch.Tensor | None, stop: bool) -> None:
        """Send this rank's part of the mean loss and its vote to stop. Returns at once."""
        value = torch.zeros((), device=self._device) if loss is None else loss.detach()
        if value.dtype not in (torch.float32, torch.float64):
            value = value.float()
        if self._device.type == "cpu":
            # One message for both. Losses of any dtype are exact in float64.
            wish = value.new_full((), float(stop), dtype=torch.float64)
            self._sum = torch.stack((value.double() / self._repeats, wish))
            self._wish = None
        else:
            self._sum = (value / self._repeats).reshape(1).clone()
            self._wish = torch.tensor([float(stop)])
        if self._alone:
            return
        self._works = [dist.all_reduce(self._sum, async_op=True)]
        if self._wish is not None:
            self._works.append(dist.all_reduce(self._wish, async_op=True))

    def count(self) -> Outcome:
        """Wait for all votes and return the outcome."""
        for work in self._works:
            if work is not None:
                work.wait()
        self._works = []
        wish = self._sum[1] if self._wish is None else self._wish[0]
        return Outcome(loss=self._sum[0], stop=bool(wish.item() > 0))


@contextlib.contextmanager
def evaluating(*modules: nn.Module) -> Iterator[None]:
    """Disable gradients, dropout and the like, and restore everything afterwards."""
    was_training = [module.training for module in modules]
    try:
        for module in modules:
            module.eval()
        with torch.no_grad():
            yield
    finally:
        for module, training in zip(modules, was_training, strict=True):
            module.train(training)
            for part in module.modules():
                if isinstance(part, FSDPModule):
                    # No backward pass follows that would free the gathered parameters.
                    part.reshard()


def model_state(*modules: nn.Module) -> dict[str, torch.Tensor]:
    """Return parameters and persistent buffers of this rank's part of the model, detached."""
    state: dict[str, torch.Tensor] = {}
    for module in modules:
        for name, value in module.state_dict().items():
            if isinstance(value, torch.Tensor):
                state[name] = value.detach()
    return state


def snapshot_of(model: Mapping[str, torch.Tensor], optimizers: Optimizers) -> EngineState:
    """Return the model and the optimizer state of this rank under canonical names."""
    tensors = {f"model.{name}": value.detach() for name, value in model.items()}
    scalars: dict[str, Plain] = {}
    for name, values in optimizers.state().items():
        for key, value in values.items():
            if isinstance(value, torch.Tensor):
                tensors[f"optim.{name}.{key}"] = value.detach()
            elif value is None or isinstance(value, bool | int | float | str):
                scalars.setdefault(name, {})[key] = value
    plain: Plain = {
        "options": optimizers.options(),
        "scalars": scalars,
        "schedules": optimizers.schedule_state(),
    }
    return EngineState(tensors=tensors, plain=plain)


def restore_into(
    model: Mapping[str, torch.Tensor], optimizers: Optimizers, stored: StoredState
) -> None:
    """Fill this rank's part of the model and its optimizers from a checkpoint."""
    tensors = {f"model.{name}": value.detach() for name, value in model.items()}
    state: dict[str, dict[str, Any]] = {}
    scalars: Mapping[str, Plain] = stored.plain["scalars"]
    for name, parameter in optimizers.parameters().items():
        values: dict[str, Any] = dict(scalars.get(name, {}))
        prefix = f"optim.{name}."
        for full_name in stored.names(prefix):
            key = full_name.removeprefix(prefix)
            shape, dtype = stored.shape(full_name)
            values[key] = tensors[full_name] = _like_parameter(parameter, shape, dtype)
        if values:
            state[name] = values
    stored.read(tensors)
    optimizers.load(state, stored.plain["options"], stored.plain["schedules"])


def _like_parameter(parameter: nn.Parameter, shape: torch.Size, dtype: torch.dtype) -> torch.Tensor:
    """Return a tensor for optimizer state: laid out like its parameter if it has the same shape."""
    data = parameter.detach()
    if data.shape == shape:
        return torch.zeros_like(data, dtype=dtype)
    return torch.zeros(shape, dtype=dtype)


def gather_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """Return the whole tensor on the CPU. Collective over the mesh of a distributed tensor."""
    full = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
    return full.detach().to("cpu", copy=True)
