"""The trainer: what a training script holds on to on every rank."""

import atexit
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, NoReturn, Self

import torch
import torch.distributed as dist
from torch.utils.data import Dataset

from slipway.distributed.announce import Announcer
from slipway.distributed.batches import (
    Batch,
    Feed,
    SampleOrder,
    Share,
    batches_to_measure,
    samples_in,
    size_of,
)
from slipway.distributed.build import TrainingTarget
from slipway.distributed.checkpoint import FOLDER_VARIABLE, Checkpointer, Checkpoints
from slipway.distributed.engine import Engine, LossFunction
from slipway.distributed.errors import (
    EXIT_STOPPED,
    CheckpointError,
    DistributedError,
    PeerLost,
    StrategyNotPossible,
)
from slipway.distributed.manifest import Manifest
from slipway.distributed.mesh import mesh_position
from slipway.distributed.parameter_server.roles import ServerEngine, WorkerEngine
from slipway.distributed.random_state import capture_random_state, restore_random_state
from slipway.distributed.shutdown import StopRequest
from slipway.schemas.truncation import shorten

logger = logging.getLogger(__name__)

_EXIT_TERMINATED = 143  # what a shell reports for SIGTERM
# Messages of gloo and NCCL when a peer is gone.
_PEER_FAILED = (
    "third_party/gloo",
    "connection closed by peer",
    "connection reset by peer",
    "caused pair closure",
    "timed out waiting",
    "nccl communicator",
    "watchdog caught collective",
)


class Trainer:
    """Trains one model on all ranks of the job. Made by `prepare()`. The same on every rank.

    Methods marked collective must be called by every rank at the same place of the script.
    """

    def __init__(
        self,
        engine: Engine,
        job: TrainingTarget,
        checkpoints: Checkpoints,
        *,
        reason: str,
        seed: int,
        owns_group: bool,
    ) -> None:
        self.strategy = str(job.strategy)
        """The strategy in force, as a word."""
        self.reason = reason
        """Why, in a sentence."""
        self.rank = job.ranks.rank
        self.world_size = job.ranks.world_size
        self.device = job.device
        self.steps = 0
        """Optimisation steps done, those before a resume included."""
        self._engine = engine
        self._job = job
        self._seed = seed
        self._owns_group = owns_group
        self._feed = Feed(engine.share, batch_multiple=engine.batch_multiple)
        self._announcer = Announcer(self.rank)
        self._announcer.strategy(self.strategy, reason)
        self._every_steps = checkpoints.every_steps
        folder = checkpoints.resolve_folder()
        self._checkpointer = (
            None
            if folder is None
            else Checkpointer(
                folder,
                checkpoints.keep,
                together=job.layout.servers == 0,
                published=self._announcer.checkpoint,
            )
        )
        self._saved_step = -1
        self._stop_request = StopRequest()
        self._stop_agreed = False
        self._closed = False
        self._peer_is_lost = False
        if self.world_size > 1:
            self._seed_generators(seed)
        atexit.register(self.close)

    @property
    def is_main(self) -> bool:
        """True if this is rank 0, which prints and to which `state_dict()` gives the model."""
        return self.rank == 0

    @property
    def share(self) -> Share:
        """Part of every global batch that this rank computes."""
        return self._engine.share

    def shard(
        self,
        dataset: "Dataset[Any] | Sequence[torch.Tensor]",
        batch_size: int,
        *,
        epochs: int = 1,
        shuffle: bool = True,
        seed: int = 0,
        workers: int = 0,
        collate: Callable[[list[Any]], Batch] | None = None,
    ) -> Iterator[Batch]:
        """Yield this rank's share of each batch of `batch_size` samples, over all ranks.

        `dataset` is a map-style Dataset of (inputs, target), or tensors with samples on their
        first dimension, the last one being the target. The order depends on `seed` and the epoch
        alone. What fills no batch at the end of an epoch is left out. After `resume()` it goes on
        where the checkpoint was. `workers` processes fetch samples, `collate` stacks them as in
        torch's DataLoader. When the job is asked to stop, it saves a checkpoint and exits.
        """
        if isinstance(self._engine, ServerEngine):
            if self._engine.serve():
                self.stop()
            return
        order = SampleOrder(samples_in(dataset), batch_size, seed, shuffle)
        batches = self._feed.batches(
            dataset, order, epochs=epochs, workers=workers, collate=collate
        )
        try:
            for batch in batches:
                if self.should_stop():
                    self.stop()
                yield batch
        finally:
            if isinstance(self._engine, WorkerEngine) and not self._closed:
                self._engine.pause()

    def step(self, batch: Batch) -> torch.Tensor:
        """Run one optimisation step on this rank's share of a batch, (inputs, target).

        Returns the mean loss of the global batch, 0-dimensional and detached (of this rank's
        share with an asynchronous parameter server). Collective. Raises PeerLost when another
        rank is gone.
        """
        if self._closed:
            raise StrategyNotPossible("The trainer is closed.", next_step="Call prepare() again.")
        weight = 1.0
        if self._feed.total is not None:
            weight = size_of(batch[0]) * self.share.count / self._feed.total
        try:
            outcome = self._engine.step(batch, weight, self._stop_request.requested)
        except RuntimeError as error:
            if (lost := _peer_lost(error, self._job.timeout_s)) is None:
                raise
            self._peer_is_lost = True
            raise lost from error
        self._feed.used()
        self.steps += 1
        self._announcer.step(self.steps)
        self._stop_agreed = outcome.stop
        if self._every_steps is not None and self.steps % self._every_steps == 0:
            self.save()
        return outcome.loss

    def evaluate(
        self,
        dataset: "Dataset[Any] | Sequence[torch.Tensor]",
        batch_size: int,
        *,
        metric: LossFunction | None = None,
        workers: int = 0,
        collate: Callable[[list[Any]], Batch] | None = None,
    ) -> float:
        """Return the mean of the loss, or of `metric(output, target)`, over a dataset.

        The function must return the mean over the samples it is given. Without gradients and in
        evaluation mode. Ranks share the work, except workers of a parameter server, which each do
        all of it (servers return NaN). A pipeline leaves out what fills no batch. Collective.
        """
        if isinstance(self._engine, ServerEngine):
            return math.nan
        together = not isinstance(self._engine, WorkerEngine)
        order = SampleOrder(
            samples_in(dataset), min(batch_size, samples_in(dataset)), shuffle=False
        )
        batches = batches_to_measure(
            dataset,
            order,
            self.share if together else Share(),
            whole_only=self._job.layout.pipeline > 1,
            workers=workers,
            collate=collate,
        )
        sums = torch.zeros(2, dtype=torch.float64, device=self.device)
        for measured in batches:
            mean = self._engine.measure(measured.batch, metric)
            if mean is not None and measured.counts:
                counted = mean.detach().double() * measured.counts
                sums += torch.stack((counted, torch.full_like(counted, measured.counts)))
        if together and self.world_size > 1:
            # If several ranks have the same share (tensor), it counts equally often in both sums.
            dist.all_reduce(sums)
        return (sums[0] / sums[1]).item()

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return the whole model on the CPU, under its own names, on rank 0, and {} elsewhere.

        Collective: call it on every rank, then use it where `is_main`.
        """
        return self._engine.state_dict()

    def save(self, *, metric: float | None = None, wait: bool = False) -> None:
        """Write a checkpoint of this step in the background. With `wait`, return when it is stored.

        `metric` is what `Retention(best=...)` compares. Collective. Raises CheckpointError when
        no folder is set, or when writing this one (with `wait`) or the one before failed.
        """
        checkpointer = self._required_checkpointer()
        if self._engine.saves:
            snapshot = self._engine.snapshot()
            generators = capture_random_state(self.device)
            snapshot.tensors |= {f"rng.{self.rank}.{k}": v for k, v in generators.items()}
            checkpointer.save(snapshot, self._manifest(metric))
            self._saved_step = self.steps
        if wait:
            checkpointer.wait()

    def resume(self) -> int:
        """Resume from the newest complete checkpoint, and return its step, or 0 without one.

        The checkpoint may be of another number of ranks and another strategy. Damaged ones are
        named in a warning and passed over. Collective. Call it before the first step. Raises
        CheckpointError when the model does not match.
        """
        newest = self._required_checkpointer().newest()
        if newest is None:
            return 0
        manifest, stored = newest
        self._engine.restore(stored)
        self._feed.load_state(manifest.plain["data"])
        self.steps = self._saved_step = manifest.step
        prefix = f"rng.{self.rank}."
        generators = {
            name.removeprefix(prefix): torch.empty(shape, dtype=dtype)
            for name in stored.names(prefix)
            for shape, dtype in [stored.shape(name)]
        }
        same = (manifest.strategy, manifest.world_size) == (self.strategy, self.world_size)
        if same:
            stored.read({prefix + name: value for name, value in generators.items()})
            restore_random_state(generators, self.device)
        else:
            # With generators of another layout, ranks that must draw the same numbers would not.
            self._seed_generators(self._seed + manifest.step)
        logger.info("Resumed from step %d, saved by %s.", manifest.step, manifest.strategy)
        return manifest.step

    def should_stop(self) -> bool:
        """True if any rank was asked to stop (SIGTERM), as all ranks agreed in the last step."""
        return self._stop_agreed

    def stop(self) -> NoReturn:
        """Save a checkpoint of this step and exit with EXIT_STOPPED, 75: start again to go on.

        Collective. Where no folder for checkpoints is set, exits with 143 as SIGTERM does.
        """
        code = _EXIT_TERMINATED
        if self._checkpointer is not None:
            if self._saved_step != self.steps:
                self.save()
            code = EXIT_STOPPED
        self.close()
        logger.info("Stopped on request after step %d.", self.steps)
        raise SystemExit(code)

    def close(self) -> None:
        """Wait for the last checkpoint and let go of the other ranks. Safe to call twice.

        Raises CheckpointError when the last checkpoint could not be written.
        """
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self.close)
        self._stop_request.close()
        try:
            # If a peer is lost, the last checkpoint could wait for it until the timeout.
            if self._checkpointer is not None and not self._peer_is_lost:
                self._checkpointer.wait()
            if isinstance(self._engine, ServerEngine):
                self._engine.serve()
        finally:
            self._engine.close()
            self._announcer.close()
            if self._owns_group and dist.is_initialized():
                dist.destroy_process_group()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
            return
        try:
            self.close()
        except DistributedError as second:
            logger.warning("%s", second)  # the first error is the one that explains the end

    def _seed_generators(self, seed: int) -> None:
        """Seed torch so that ranks that share a sample draw the same and others do not."""
        place = mesh_position(self.rank, self._job.layout)
        torch.manual_seed((seed + 7_919 * self.share.index + 104_729 * place.pipeline) % 2**63)

    def _manifest(self, metric: float | None) -> Manifest:
        if metric is not None and not math.isfinite(metric):
            logger.warning("The metric %s of step %d never is the best.", metric, self.steps)
            metric = None
        return Manifest(
            step=self.steps,
            saved_at=datetime.now(UTC).isoformat(timespec="seconds"),
            strategy=self.strategy,
            world_size=self.world_size,
            torch=torch.__version__,
            metric=metric,
            plain={"data": self._feed.state()},
        )

    def _required_checkpointer(self) -> Checkpointer:
        if self._checkpointer is None:
            raise CheckpointError(
                "No folder for checkpoints is set.",
                next_step="Give prepare() checkpoints=Checkpoints(folder), or set "
                f"{FOLDER_VARIABLE}; under slipway train it is set.",
            )
        return self._checkpointer


def _peer_lost(error: RuntimeError, timeout_s: float) -> PeerLost | None:
    """Return what to say when another rank caused the error of a step, None when it did not."""
    text = str(error)
    network = isinstance(error, dist.DistError) or any(p in text.lower() for p in _PEER_FAILED)
    if not network or isinstance(error, torch.OutOfMemoryError):
        return None
    return PeerLost(
        f"Another rank died, froze or cannot be reached: {shorten(text.splitlines()[0], 300)}",
        next_step="Look for the first error in the logs of the other ranks; a silent rank is "
        f"given up after {timeout_s:g} s.",
    )
