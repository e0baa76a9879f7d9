"""Pipeline parallelism: consecutive stages of the model on different ranks.

A share of the batch is cut into micro-batches that follow each other through the stages. GPipe
(Huang et al. 2019) runs all forward passes, then all backward ones. 1F1B (Narayanan et al. 2019,
"PipeDream") alternates them and so holds activations of as many micro-batches as there are
stages, not of all. Interleaved 1F1B (Narayanan et al. 2021, "Megatron-LM") gives each rank two
shorter stages, which shortens the idle time at both ends at the price of more messages.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import (
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
)

from slipway.distributed.batches import Batch, Share, size_of, to_device
from slipway.distributed.engine import (
    EngineState,
    LossFunction,
    Outcome,
    StoredState,
    Vote,
    evaluating,
    gather_tensor,
    model_state,
    restore_into,
    snapshot_of,
)
from slipway.distributed.errors import StrategyNotPossible
from slipway.distributed.mesh import PIPELINE, axis
from slipway.distributed.optimizers import Optimizers, average_gradients
from slipway.schemas.strategy import Layout, Schedule

STAGES_PER_RANK = {Schedule.GPIPE: 1, Schedule.ONE_FORWARD_ONE_BACKWARD: 1, Schedule.INTERLEAVED: 2}
AnySchedule = ScheduleGPipe | Schedule1F1B | ScheduleInterleaved1F1B


def stages_of(rank: int, ranks: int, schedule: Schedule) -> list[int]:
    """Return the numbers of the stages that rank `rank` of the pipeline holds."""
    return [rank + ranks * turn for turn in range(STAGES_PER_RANK[schedule])]


def default_microbatches(ranks: int) -> int:
    """Return how many micro-batches keep the idle share of a pipeline near a third.

    GPipe and 1F1B idle for (ranks - 1) / (microbatches + ranks - 1) of the time.
    """
    return 2 * ranks


def build_schedule(
    wrapped: Sequence[nn.Module],
    numbers: Sequence[int],
    loss_function: LossFunction,
    *,
    schedule: Schedule,
    layout: Layout,
    microbatches: int,
    mesh: DeviceMesh,
    device: torch.device,
) -> AnySchedule:
    """Return the schedule that runs this rank's stages, each wrapped for data parallelism."""
    count = layout.pipeline * STAGES_PER_RANK[schedule]
    group = axis(mesh, PIPELINE).get_group()
    stages = [
        PipelineStage(module, number, count, device, group=group)
        for module, number in zip(wrapped, numbers, strict=True)
    ]
    if schedule is Schedule.INTERLEAVED:
        return ScheduleInterleaved1F1B(
            list(stages), n_microbatches=microbatches, loss_fn=loss_function
        )
    kind = ScheduleGPipe if schedule is Schedule.GPIPE else Schedule1F1B
    return kind(stages[0], n_microbatches=microbatches, loss_fn=loss_function)


class PipelineEngine:
    """Trains the stages of one rank, in step with the ranks before and after it."""

    saves = True

    def __init__(
        self,
        *,
        schedules: Callable[[LossFunction], AnySchedule],
        loss_function: LossFunction,
        inner: Sequence[nn.Module],
        optimizers: Optimizers,
        share: Share,
        microbatches: int,
        layout: Layout,
        is_first: bool,
        is_last: bool,
        owners: Mapping[str, int],
        shapes: Mapping[str, tuple[torch.Size, torch.dtype]],
        copies: dist.ProcessGroup | None,
        device: torch.device,
        vote: Vote,
    ) -> None:
        """`schedules` builds a schedule of this rank's stages for a function of output and target.
        `inner` are the stages under the model's names. `owners` says which rank along
        the pipeline holds a name, `shapes` what it looks like. `copies` are the ranks with the
        same stages, if gradients must still be averaged over them."""
        self.share = share
        self.batch_multiple = share.count * microbatches
        self._schedules = schedules
        self._schedule = schedules(loss_function)
        self._measuring: dict[LossFunction, AnySchedule] = {loss_function: self._schedule}
        self._loss_function = loss_function
        self._share_size: int | None = None
        self._inner = list(inner)
        self._optimizers = optimizers
        self._layout = layout
        self._is_first = is_first
        self._is_last = is_last
        self._owners = owners
        self._shapes = shapes
        self._copies = copies
        self._device = device
        self._vote = vote

    def step(self, batch: Batch, weight: float, stop: bool) -> Outcome:
        """Train on this rank's share of a batch. All shares are of one size."""
        self._optimizers.zero_grad()
        mean = self._run(self._schedule.step, batch)
        mean = None if mean is None else mean / self.share.count
        self._vote.cast(mean, stop)
        if self._copies is not None:
            # Not by DistributedDataParallel: it fails when all forward passes come first (GPipe,
            # interleaved; torch 2.13), and has nothing left to overlap the exchange with.
            average_gradients(self._optimizers.trained(), self._copies)
        self._optimizers.step()
        return self._vote.count()

    def measure(self, batch: Batch, function: LossFunction | None) -> torch.Tensor | None:
        """Return the mean of a function over this rank's share, on the ranks of the last stage."""
        function = function or self._loss_function
        if function not in self._measuring:
            self._measuring[function] = self._schedules(function)
        with evaluating(*self._inner):
            return self._run(self._measuring[function].eval, batch)

    def _run(self, run: Callable[..., Any], batch: Batch) -> torch.Tensor | None:
        """Send a share through the pipeline, and return the mean loss on the last stage."""
        inputs, target = to_device(batch, self._device)
        if isinstance(inputs, Mapping):
            raise StrategyNotPossible(
                "A pipeline takes the inputs of a model by position, not by name.",
                next_step="Yield (inputs, target) with a tensor or a tuple of tensors as inputs.",
            )
        size = size_of(inputs)
        if self._share_size not in (None, size):
            raise StrategyNotPossible(
                f"The stages of this pipeline have agreed on shares of {self._share_size} samples, "
                f"not {size}.",
                next_step="Evaluate with the batch_size of training.",
            )
        self._share_size = size
        args = (inputs,) if isinstance(inputs, torch.Tensor) else tuple(inputs)
        losses: list[torch.Tensor] = []
        run(
            *(args if self._is_first else ()),
            target=target if self._is_last else None,
            losses=losses if self._is_last else None,
            return_outputs=False,
        )
        return torch.stack(losses).detach().mean() if losses else None

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return the whole model on the CPU on rank 0, nothing elsewhere."""
        wholes_by_name = {
            name: gather_tensor(value) for name, value in model_state(*self._inner).items()
        }
        stride = self._layout.replicas * self._layout.shards * self._layout.tensor
        rank = dist.get_rank()
        state: dict[str, torch.Tensor] = {}
        for name, (shape, dtype) in self._shapes.items():
            owner = self._owners.get(name, 0) * stride
            if owner == 0:
                if rank == 0 and name in wholes_by_name:
                    state[name] = wholes_by_name[name]
            elif rank == owner:
                dist.send(wholes_by_name[name].contiguous(), dst=0)
            elif rank == 0:
                state[name] = torch.empty(shape, dtype=dtype)
                dist.recv(state[name], src=owner)
        return state

    def snapshot(self) -> EngineState:
        """Return the stages and their optimizer state of this rank."""
        return snapshot_of(model_state(*self._inner), self._optimizers)

    def restore(self, stored: StoredState) -> None:
        """Load model and optimizer state."""
        restore_into(model_state(*self._inner), self._optimizers, stored)

    def close(self) -> None:
        """Nothing is held that the process group does not hold."""
