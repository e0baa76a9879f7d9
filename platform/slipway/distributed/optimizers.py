"""Optimizers over parameters that have names, whole or divided among ranks (ZeRO stage 1).

The state of an optimizer is kept and restored by the name of the parameter it belongs to, not by
its number: so a checkpoint fits another number of ranks and another strategy.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from slipway.distributed.clipping import GradientClip
from slipway.distributed.errors import StrategyNotPossible

OptimizerFactory = Callable[[list[nn.Parameter]], Optimizer]
ScheduleFactory = Callable[[Optimizer], LRScheduler]
Named = Sequence[tuple[str, nn.Parameter]]
# JSON values: the numbers, flags and names that optimizers store besides tensors.
Plain = dict[str, Any]

_MESSAGE_BYTES = 32 * 2**20


class Optimizers:
    """The optimizers of one rank, stepped together, with an optional learning-rate schedule each.

    The factory is called once for each kind of parameter: plain tensors and tensors distributed
    over different meshes cannot share the fused loops of one optimizer.
    """

    def __init__(
        self,
        named: Named,
        factory: OptimizerFactory,
        schedule: ScheduleFactory | None = None,
        clip: GradientClip | None = None,
    ) -> None:
        self._clip = clip
        self._named = [(name, parameter) for name, parameter in named if parameter.requires_grad]
        if not self._named:
            raise StrategyNotPossible(
                "Nothing can be trained here: no parameter requires a gradient.",
                next_step="Unfreeze a parameter, or use fewer pipeline stages.",
            )
        self._names: dict[torch.Tensor, str] = {parameter: name for name, parameter in self._named}
        self.optimizers: list[Optimizer] = []
        self._schedules: list[LRScheduler] = []
        for parameters in _kinds(parameter for _, parameter in self._owned()):
            optimizer = factory(parameters)
            _check_covers(optimizer, parameters)
            self.optimizers.append(optimizer)
            if schedule is not None:
                self._schedules.append(schedule(optimizer))

    def _owned(self) -> Named:
        return self._named

    def trained(self) -> list[nn.Parameter]:
        """Return all parameters of this rank that get gradients."""
        return [parameter for _, parameter in self._named]

    def zero_grad(self) -> None:
        """Drop all gradients."""
        for _, parameter in self._named:
            parameter.grad = None

    def step(self) -> None:
        """Change the parameters by their gradients, then move the schedules on by one step."""
        if self._clip is not None:
            self._clip(self.trained())
        for optimizer in self.optimizers:
            optimizer.step()
        for schedule in self._schedules:
            schedule.step()

    def state(self) -> dict[str, dict[str, Any]]:
        """Return the state of each parameter of this rank by its name: tensors and numbers."""
        return {
            self._names[parameter]: dict(values)
            for optimizer in self.optimizers
            for parameter, values in optimizer.state.items()
        }

    def options(self) -> dict[str, Plain]:
        """Return the options (learning rate, …) in force for each parameter, by its name."""
        return {
            self._names[parameter]: _json_values(group)
            for optimizer in self.optimizers
            for group in optimizer.param_groups
            for parameter in group["params"]
        }

    def schedule_state(self) -> list[Plain]:
        """Return the state of the schedules. The first represents all ranks."""
        return [_json_values(schedule.state_dict()) for schedule in self._schedules]

    def parameters(self) -> dict[str, nn.Parameter]:
        """Return the parameters that this rank's optimizers change, by name."""
        return dict(self._owned())

    def load(
        self,
        state: Mapping[str, dict[str, Any]],
        options: Mapping[str, Plain],
        schedules: Sequence[Plain],
    ) -> None:
        """Load state, options and schedules of a checkpoint."""
        for optimizer in self.optimizers:
            packed = optimizer.state_dict()
            ordered = chain.from_iterable(group["params"] for group in optimizer.param_groups)
            packed["state"] = {
                number: state[name]
                for number, parameter in enumerate(ordered)
                if (name := self._names[parameter]) in state
            }
            for group, saved in zip(optimizer.param_groups, packed["param_groups"], strict=True):
                for parameter in group["params"][:1]:
                    saved.update(_with_types_of(options.get(self._names[parameter], {}), group))
            optimizer.load_state_dict(packed)
        for schedule in self._schedules:
            for saved in schedules[:1]:
                schedule.load_state_dict(_with_types_of(saved, schedule.state_dict()))


class OwnedOptimizers(Optimizers):
    """ZeRO stage 1: each rank keeps optimizer state for its part of the parameters alone.

    Gradients are already the same on all ranks of `group`. Every rank changes the parameters it
    owns and sends them to the others. Parameters are dealt whole, the largest first to the rank
    that owns least, because optimizers may inspect a parameter's shape (Rajbhandari et al. 2020,
    "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", §5.1).
    """

    def __init__(
        self,
        named: Named,
        factory: OptimizerFactory,
        schedule: ScheduleFactory | None,
        clip: GradientClip | None,
        group: dist.ProcessGroup,
    ) -> None:
        self._group = group
        self._rank = group.rank()
        trained = [(name, parameter) for name, parameter in named if parameter.requires_grad]
        self._owners = deal([_local(parameter).numel() for _, parameter in trained], group.size())
        super().__init__(named, factory, schedule, clip)

    def _owned(self) -> Named:
        return [
            pair
            for pair, owner in zip(self._named, self._owners, strict=True)
            if owner == self._rank
        ]

    def step(self) -> None:
        """Change the owned parameters, then receive the others from their owners."""
        super().step()
        sent: list[tuple[dist.Work | None, torch.Tensor, list[torch.Tensor]]] = []
        for owner in range(self._group.size()):
            owned = [
                _local(parameter.detach())
                for (_, parameter), by in zip(self._named, self._owners, strict=True)
                if by == owner
            ]
            for bucket in _buckets(owned):
                flat = torch.cat([tensor.reshape(-1) for tensor in bucket])
                work = dist.broadcast(flat, group=self._group, group_src=owner, async_op=True)
                sent.append((work, flat, [] if owner == self._rank else bucket))
        for work, flat, bucket in sent:
            if work is not None:
                work.wait()
            if bucket:
                _unpack(flat, bucket)


def average_gradients(parameters: Iterable[nn.Parameter], group: dist.ProcessGroup) -> None:
    """Replace gradients by their mean over the ranks of a group, a few messages at a time."""
    gradients = [_local(p.grad) for p in parameters if p.grad is not None]
    sent = []
    for bucket in _buckets(gradients):
        flat = torch.cat([tensor.reshape(-1) for tensor in bucket]).div_(group.size())
        sent.append((dist.all_reduce(flat, group=group, async_op=True), flat, bucket))
    for work, flat, bucket in sent:
        if work is not None:
            work.wait()
        _unpack(flat, bucket)


def _unpack(flat: torch.Tensor, bucket: Sequence[torch.Tensor]) -> None:
    parts = torch.split(flat, [tensor.numel() for tensor in bucket])
    for tensor, values in zip(bucket, parts, strict=True):
        tensor.copy_(values.view_as(tensor))


def deal(sizes: Sequence[int], count: int) -> list[int]:
    """Return an owner from 0 to `count` - 1 for each size, so that all own about as much."""
    owned = [0] * count
    owners = [0] * len(sizes)
    for number in sorted(range(len(sizes)), key=lambda n: (-sizes[n], n)):
        owner = min(range(count), key=lambda n: (owned[n], n))
        owners[number] = owner
        owned[owner] += sizes[number]
    return owners


def _buckets(tensors: Iterable[torch.Tensor]) -> Iterable[list[torch.Tensor]]:
    """Group tensors of one type into messages of about `_MESSAGE_BYTES`."""
    open_buckets: dict[torch.dtype, list[torch.Tensor]] = {}
    for tensor in tensors:
        bucket = open_buckets.setdefault(tensor.dtype, [])
        bucket.append(tensor)
        if sum(held.nbytes for held in bucket) >= _MESSAGE_BYTES:
            yield open_buckets.pop(tensor.dtype)
    yield from open_buckets.values()


def _local(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _kinds(parameters: Iterable[nn.Parameter]) -> list[list[nn.Parameter]]:
    kinds: dict[object, list[nn.Parameter]] = {}
    for parameter in parameters:
        data = parameter.data
        mesh = data.device_mesh if isinstance(data, DTensor) else None
        kinds.setdefault((mesh, parameter.device), []).append(parameter)
    return list(kinds.values())


def _check_covers(optimizer: Optimizer, parameters: Sequence[nn.Parameter]) -> None:
    held = set(chain.from_iterable(group["params"] for group in optimizer.param_groups))
    if held != set(parameters):
        raise StrategyNotPossible(
            f"The optimizer changes {len(held)} parameters, but was given {len(parameters)}.",
            next_step="Build the optimizer from the list the factory receives, such as "
            "lambda parameters: torch.optim.AdamW(parameters, lr=1e-3).",
        )


def _json_values(values: Mapping[str, Any]) -> Plain:
    return {
        key: _plain_value(value)
        for key, value in values.items()
        if key != "params" and not callable(value)
    }


def _plain_value(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.item() if value.numel() == 1 else value.tolist()
    if isinstance(value, Mapping):
        return _json_values(value)
    if isinstance(value, list | tuple):
        return [_plain_value(item) for item in value if not callable(item)]
    return value


def _with_types_of(saved: Mapping[str, Any], current: Mapping[str, Any]) -> Plain:
    """Return the saved values in the types the current ones have: JSON knows no tuples."""
    restored: Plain = {}
    for key, value in saved.items():
        now = current.get(key)
        if isinstance(now, tuple) and isinstance(value, list):
            restored[key] = tuple(value)
        elif isinstance(now, torch.Tensor):
            restored[key] = torch.tensor(value, dtype=now.dtype, device=now.device)
        else:
            restored[key] = value
    return restored
