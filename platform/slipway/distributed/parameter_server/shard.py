"""One server's part of the parameters: who may change it, when, and who has to wait.

Synchronous: an update for each round, by the mean gradient of all workers (Li et al. 2014,
"Scaling Distributed Machine Learning with the Parameter Server"). Asynchronous: every gradient
is applied as it comes (Dean et al. 2012, "Downpour SGD"). Stale-synchronous: as it comes too, but
nobody runs more than a number of steps ahead of the slowest (Ho et al. 2013, "SSP").

A worker that dies or keeps silent for `patience_s` while others wait for it no longer counts.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import nn

from slipway.distributed.clipping import GradientClip
from slipway.distributed.engine import StoredState, restore_into, snapshot_of
from slipway.distributed.optimizers import OptimizerFactory, Optimizers, ScheduleFactory
from slipway.distributed.parameter_server.shards import PackedShard, ShardLayout, describe_state
from slipway.distributed.parameter_server.wire import Flag, Frame
from slipway.schemas.strategy import Consistency, Servers

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ShardState:
    """The parameters as of `version`, the mean loss of the round, and the flags for a worker."""

    parameters: bytes
    version: int
    loss: float
    flags: int


@dataclass(frozen=True, slots=True)
class _PushedGradient:
    weight: float
    loss: float
    gradient: PackedShard


class Shard:
    """The parameters of one server and their optimizer. Its methods may be called by any thread."""

    def __init__(
        self,
        layout: ShardLayout,
        values: Mapping[str, torch.Tensor],
        *,
        factory: OptimizerFactory,
        schedule: ScheduleFactory | None,
        clip: GradientClip | None = None,
        servers: Servers,
        workers: int,
        patience_s: float,
    ) -> None:
        self._packed = PackedShard(layout)
        self._packed.fill(values)
        # The parameters are views of the buffer that is sent.
        self._parameters = {n: nn.Parameter(view) for n, view in self._packed.tensors.items()}
        self._optimizers = Optimizers(list(self._parameters.items()), factory, schedule, clip)
        self._servers = servers
        self._patience_s = patience_s
        self._changed = threading.Condition()
        self._version = 0
        self._loss = 0.0
        self._stop = False
        self._frozen: tuple[int, bytes] = (-1, b"")
        self._clocks = dict.fromkeys(range(workers), 0)  # of the active workers
        self._workers = workers
        self._unseen = set(range(workers))
        self._gone: set[int] = set()
        self._silent: set[int] = set()
        self._pending: dict[int, _PushedGradient] = {}
        self._opened_at = time.monotonic()
        self._heard_at: dict[int, float] = {}

    def greet(self, worker: int) -> None:
        """Note that a worker has connected."""
        with self._changed:
            self._unseen.discard(worker)
            self._gone.discard(worker)
            self._heard_at[worker] = time.monotonic()

    def pull(self, worker: int) -> ShardState:
        """Return the parameters as they are."""
        with self._changed:
            return self._answer(worker, self._loss)

    def push(self, frame: Frame, gradient: PackedShard) -> ShardState:
        """Accept a gradient, and return the parameters when the worker may continue."""
        worker = frame.worker
        with self._changed:
            self._stop = self._stop or bool(frame.flags & Flag.STOP)
            self._clocks[worker] = frame.clock
            self._heard_at[worker] = time.monotonic()
            self._silent.discard(worker)
            if self._servers.consistency is Consistency.SYNCHRONOUS:
                self._add_to_round(frame, gradient)
                return self._answer(worker, self._loss)
            self._apply({worker: _PushedGradient(frame.weight, frame.loss, gradient)})
            if self._servers.consistency is Consistency.STALE_SYNCHRONOUS:
                self._wait(worker, lambda: self._ahead(worker) <= self._servers.staleness)
            return self._answer(worker, frame.loss)

    def leave(self, worker: int) -> None:
        """Stop counting a worker until it pushes again."""
        with self._changed:
            self._drop_worker(worker)

    def remove_worker(self, worker: int, *, said_bye: bool) -> None:
        """Note that a worker will not come back."""
        with self._changed:
            if not said_bye:
                logger.warning("Worker %d was lost; the others go on without it.", worker)
            self._gone.add(worker)
            self._drop_worker(worker)

    def state(self) -> tuple[bytes, bytes]:
        """Return the state of the optimizer: its description and its bytes."""
        with self._changed:
            snapshot = snapshot_of({}, self._optimizers)
            described = describe_state(snapshot.tensors, snapshot.plain)
            layout = ShardLayout({n: (t.shape, t.dtype) for n, t in snapshot.tensors.items()})
            packed = PackedShard(layout)
            packed.fill(snapshot.tensors)
            return described, bytes(packed.buffer)

    def restore(self, stored: StoredState) -> None:
        """Load parameters and optimizer state of a checkpoint."""
        with self._changed:
            restore_into(self._parameters, self._optimizers, stored)
            self._version += 1

    def stop_requested(self) -> bool:
        """True if any worker was asked to stop."""
        with self._changed:
            return self._stop

    def wait_for_workers_to_leave(self) -> None:
        """Return when all workers are gone, or those that are not have long been silent.

        One that has left the loop is waited for as long as it lives: it may evaluate for hours.
        """
        with self._changed:
            while len(self._gone) < self._workers:
                self._changed.wait(timeout=1.0)
                silent_since = time.monotonic() - self._patience_s
                for worker in sorted(set(range(self._workers)) - self._gone):
                    counts = worker in self._clocks and (self._gone or worker in self._unseen)
                    if counts and self._heard_at.get(worker, self._opened_at) < silent_since:
                        logger.warning("Worker %d is silent; not waiting for it.", worker)
                        self._unseen.discard(worker)
                        self._gone.add(worker)
                        self._drop_worker(worker)

    def _add_to_round(self, frame: Frame, gradient: PackedShard) -> None:
        if frame.version != self._version:
            return  # of an earlier round: the worker was dropped and came back
        self._pending[frame.worker] = _PushedGradient(frame.weight, frame.loss, gradient)
        version = self._version
        self._finish_round()
        self._wait(frame.worker, lambda: self._version != version)

    def _finish_round(self) -> None:
        if self._pending and self._clocks.keys() <= self._pending.keys():
            pending, self._pending = self._pending, {}
            self._apply(pending)
            self._changed.notify_all()

    def _apply(self, pushed: Mapping[int, _PushedGradient]) -> None:
        """Change the parameters by the weighted mean of gradients, summed in worker order."""
        ordered = [pushed[worker] for worker in sorted(pushed)]
        total = sum(item.weight for item in ordered)
        for name, parameter in self._parameters.items():
            if len(ordered) == 1:
                parameter.grad = ordered[0].gradient.tensors[name]
                continue
            gradient = ordered[0].gradient.tensors[name] * (ordered[0].weight / total)
            for item in ordered[1:]:
                gradient.add_(item.gradient.tensors[name], alpha=item.weight / total)
            parameter.grad = gradient
        self._loss = sum(item.loss * item.weight for item in ordered) / total
        self._optimizers.step()
        self._optimizers.zero_grad()
        self._version += 1
        self._changed.notify_all()

    def _ahead(self, worker: int) -> int:
        """Return how many steps a worker is ahead of the slowest that counts."""
        return self._clocks[worker] - min(self._clocks.values()) if worker in self._clocks else 0

    def _wait(self, worker: int, ready: Callable[[], bool]) -> None:
        until = time.monotonic() + self._patience_s
        while not ready():
            left = until - time.monotonic()
            if left > 0:
                self._changed.wait(timeout=left)
                continue
            for silent in self._stragglers(worker):
                logger.warning(
                    "Worker %d has been silent for %.0f s; the others go on without it.",
                    silent,
                    self._patience_s,
                )
                self._silent.add(silent)
                self._drop_worker(silent)
            until = time.monotonic() + self._patience_s

    def _stragglers(self, worker: int) -> list[int]:
        if self._servers.consistency is Consistency.SYNCHRONOUS:
            return [other for other in self._clocks if other not in self._pending]
        slowest = min(self._clocks.values())
        return [n for n, clock in self._clocks.items() if clock == slowest and n != worker]

    def _drop_worker(self, worker: int) -> None:
        self._clocks.pop(worker, None)
        self._pending.pop(worker, None)
        self._finish_round()
        self._changed.notify_all()

    def _answer(self, worker: int, loss: float) -> ShardState:
        if self._frozen[0] != self._version:
            self._frozen = (self._version, bytes(self._packed.buffer))
        flags = Flag.STOP if self._stop else 0
        # A paused worker remains the leader: two that write at once would corrupt the files.
        others = set(range(self._workers)) - self._gone - self._silent
        if worker == min(others, default=worker):
            flags |= Flag.LEADER
        return ShardState(self._frozen[1], self._version, loss, flags)
