"""Strategies in which every rank runs the whole model: alone, ddp, zero1, zero2, zero3, tensor."""

import contextlib
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel

from slipway.distributed.batches import Batch, Share, call, pieces, size_of, to_device
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
from slipway.distributed.optimizers import Optimizers


class WholeModelEngine:
    """Trains a model that this rank runs from its first layer to its last.

    `module` is the model as it is called (wrapped where the strategy wraps it), `inner` the same
    model under its own names. A share is computed in `microbatches` pieces whose gradients add
    up, which saves memory for activations.
    """

    saves = True

    def __init__(
        self,
        *,
        module: nn.Module,
        inner: nn.Module,
        optimizers: Optimizers,
        loss_function: LossFunction,
        share: Share,
        microbatches: int,
        device: torch.device,
        vote: Vote,
    ) -> None:
        self.share = share
        self.batch_multiple = 1
        self._module = module
        self._inner = inner
        self._optimizers = optimizers
        self._loss_function = loss_function
        self._microbatches = microbatches
        self._device = device
        self._vote = vote

    def step(self, batch: Batch, weight: float, stop: bool) -> Outcome:
        """Train on this rank's share of a batch."""
        self._optimizers.zero_grad()
        batch = to_device(batch, self._device)
        parts = pieces(batch, self._microbatches)
        samples = size_of(batch[0])
        total: torch.Tensor | None = None
        for number, (inputs, target) in enumerate(parts, start=1):
            last = number == len(parts)
            with self._adding_up(last=last):
                loss = self._loss_function(call(self._module, inputs), target)
                scale = weight * size_of(inputs) / samples
                if scale != 1.0:
                    loss = loss * scale
                total = loss.detach() if total is None else total + loss.detach()
                if last:
                    # Gradients are averaged over shares, and so is the loss.
                    self._vote.cast(total / self.share.count, stop)
                loss.backward()  # type: ignore[no-untyped-call]
        self._optimizers.step()
        return self._vote.count()

    @contextlib.contextmanager
    def _adding_up(self, *, last: bool) -> Iterator[None]:
        """Exchange gradients with the other ranks for the last micro-batch only."""
        if isinstance(self._module, DistributedDataParallel) and not last:
            with self._module.no_sync():
                yield
            return
        if isinstance(self._module, FSDPModule) and self._microbatches > 1:
            self._module.set_requires_gradient_sync(last)
        yield

    def measure(self, batch: Batch, function: LossFunction | None) -> torch.Tensor | None:
        """Return the mean of a function over this rank's share of a batch."""
        inputs, target = to_device(batch, self._device)
        with evaluating(self._inner):
            return (function or self._loss_function)(call(self._inner, inputs), target)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return the whole model on the CPU on rank 0, nothing elsewhere."""
        state = {}
        for name, value in model_state(self._inner).items():
            full = gather_tensor(value)
            if dist.get_rank() == 0:
                state[name] = full
        return state

    def snapshot(self) -> EngineState:
        """Return the model and the optimizer state of this rank."""
        return snapshot_of(model_state(self._inner), self._optimizers)

    def restore(self, stored: StoredState) -> None:
        """Load model and optimizer state."""
        restore_into(model_state(self._inner), self._optimizers, stored)

    def close(self) -> None:
        """Release the gradient averaging while its process group still exists.

        Were it the last to hold the group, freeing it would wait for the group's threads with the
        interpreter locked, and one that must free a tensor waits for the interpreter: for ever
        (torch 2.13, rarely, at the end of training).
        """
        self._module = self._inner
