"""Assignment of samples to ranks, in an order that does not depend on the number of ranks.

A global batch is drawn from one shuffled order per epoch, derived from (seed, epoch) alone, and
divided into as many shares as there are ranks with different samples. A job that resumes with
another number of ranks or another strategy therefore gets exactly the same batches.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

from slipway.distributed.errors import StrategyNotPossible

logger = logging.getLogger(__name__)

# Inputs of a model: one tensor, several by position, or several by name. Dimension 0: samples.
Inputs = torch.Tensor | Sequence[torch.Tensor] | Mapping[str, torch.Tensor]
# Targets of a loss function.
Target = torch.Tensor | Sequence[torch.Tensor]
Batch = tuple[Inputs, Target]


@dataclass(frozen=True, slots=True)
class Share:
    """Share `index` of the `count` that every global batch is cut into."""

    index: int = 0
    count: int = 1


@dataclass(frozen=True, slots=True)
class SampleOrder:
    """Order of `samples` samples, `batch_size` at each step.

    Samples at the end of an epoch that do not fill a batch are left out. With shuffling that is
    another part of the data in every epoch.
    """

    samples: int
    batch_size: int
    seed: int = 0
    shuffle: bool = True

    @property
    def batches(self) -> int:
        """Number of batches per epoch."""
        return self.samples // self.batch_size

    def epoch(self, number: int) -> torch.Tensor:
        """Return the indices of the samples of an epoch in order, shape (samples,), int64."""
        if not self.shuffle:
            return torch.arange(self.samples)
        # Seed and epoch in separate 32-bit words: epoch 1 of seed 0 differs from epoch 0 of seed 1.
        generator = torch.Generator().manual_seed((self.seed << 32) ^ number)
        return torch.randperm(self.samples, generator=generator)

    def share(self, indices: torch.Tensor, batch: int, share: Share) -> torch.Tensor:
        """Return the indices of this share of a batch, given those of its epoch."""
        whole = indices[batch * self.batch_size : (batch + 1) * self.batch_size]
        return whole.tensor_split(share.count)[share.index]


@dataclass(slots=True)
class Position:
    """Position of training in the data: samples of `epoch` that steps have used."""

    epoch: int = 0
    samples: int = 0


class Feed:
    """Hands out this rank's share of every batch and remembers how far training is.

    `batch_multiple` is what every batch must be divisible by (the shares of a pipeline must be of
    one size), `minimum` the least number of samples in a batch.
    """

    def __init__(self, share: Share, *, batch_multiple: int = 1) -> None:
        self.share = share
        self.batch_multiple = batch_multiple
        self.position = Position()
        self.total: int | None = None  # number of samples in the most recent global batch
        self._next: Position | None = None
        self._order: SampleOrder | None = None
        self._resumed: Mapping[str, int] | None = None

    def batches(
        self,
        dataset: "Dataset[Any] | Sequence[torch.Tensor]",
        order: SampleOrder,
        *,
        epochs: int,
        workers: int,
        collate: Callable[[list[Any]], Batch] | None,
    ) -> Iterator[Batch]:
        """Yield this rank's share of each batch from the current position to the last epoch."""
        self._check(order)
        self._order = order
        self._follow(order)
        while self.position.epoch < epochs:
            epoch, first = self.position.epoch, self.position.samples // order.batch_size
            indices = order.epoch(epoch)
            rows = _Rows(order, indices, first, self.share)
            for number, batch in enumerate(_fetch(dataset, rows, workers, collate), start=first):
                done = number + 1
                self._next = (
                    Position(epoch + 1)
                    if done == order.batches
                    else Position(epoch, done * order.batch_size)
                )
                self.total = order.batch_size
                yield batch
            if self.position.epoch == epoch:
                # The last batch was handed out but not trained on: the script chose to skip it.
                self.position = Position(epoch + 1)
        self.total = None

    def used(self) -> None:
        """Note that the batch handed out last has been trained on."""
        if self._next is not None:
            self.position, self._next = self._next, None

    def state(self) -> dict[str, int]:
        """Return the position as plain numbers for a checkpoint."""
        state = {"epoch": self.position.epoch, "samples": self.position.samples}
        if self._order is not None:
            state |= {"of": self._order.samples, "seed": self._order.seed}
        return state

    def load_state(self, state: Mapping[str, int]) -> None:
        """Continue at the position of a checkpoint."""
        self.position = Position(epoch=int(state["epoch"]), samples=int(state["samples"]))
        self._next = None
        self._resumed = state

    def _follow(self, order: SampleOrder) -> None:
        """Compare the order with that of the checkpoint that training resumes from."""
        resumed, self._resumed = self._resumed, None
        if resumed is not None and (
            resumed.get("of", order.samples) != order.samples
            or resumed.get("seed", order.seed) != order.seed
        ):
            logger.warning(
                "The data or the seed changed since the checkpoint (%s samples, seed %s; now %s, "
                "%s): samples of the current epoch may be seen twice or not at all.",
                resumed.get("of"),
                resumed.get("seed"),
                order.samples,
                order.seed,
            )

    def _check(self, order: SampleOrder) -> None:
        size, count = order.batch_size, self.share.count
        if size < 1 or order.samples < size:
            raise StrategyNotPossible(
                f"A batch of {size} cannot be drawn from {order.samples} samples.",
                next_step=f"Choose a batch_size from 1 to {order.samples}.",
            )
        if size < count:
            raise StrategyNotPossible(
                f"A batch of {size} samples cannot be shared by {count} ranks: some get none.",
                next_step=f"Choose a batch_size of at least {count}, or start fewer ranks.",
            )
        if size % self.batch_multiple:
            raise StrategyNotPossible(
                f"A batch of {size} samples cannot be cut into {self.batch_multiple} equal parts "
                f"({count} shares x {self.batch_multiple // count} micro-batches), which a "
                "pipeline needs.",
                next_step=f"Choose a batch_size that is a multiple of {self.batch_multiple}, or "
                "give prepare() another number of microbatches.",
            )


@dataclass(frozen=True, slots=True)
class EvaluationBatch:
    """A batch to evaluate and how many of its samples count (0: there only to take part)."""

    batch: Batch
    counts: int


def batches_to_measure(
    dataset: "Dataset[Any] | Sequence[torch.Tensor]",
    order: SampleOrder,
    share: Share,
    *,
    whole_only: bool,
    workers: int,
    collate: Callable[[list[Any]], Batch] | None,
) -> Iterator[EvaluationBatch]:
    """Yield this rank's share of every batch in order, the incomplete last one too.

    All ranks yield equally often: one without samples of the last batch repeats the first. With
    `whole_only` what fills no batch is left out.
    """
    rows = _Rows(order, order.epoch(0), 0, share)
    for batch in _fetch(dataset, rows, workers, collate):
        yield EvaluationBatch(batch, size_of(batch[0]))
    rest = order.samples % order.batch_size
    if rest and not whole_only:
        indices = torch.arange(order.samples - rest, order.samples)
        value = indices.tensor_split(share.count)[share.index]
        last = _LastBatch(value if len(value) else torch.zeros(1, dtype=torch.int64))
        for batch in _fetch(dataset, last, 0, collate):
            yield EvaluationBatch(batch, len(value))


class _LastBatch:
    """The rows of one last batch."""

    def __init__(self, rows: torch.Tensor) -> None:
        self._rows = rows

    def tensors(self) -> Iterator[torch.Tensor]:
        yield self._rows

    def __iter__(self) -> Iterator[list[int]]:
        return (rows.tolist() for rows in self.tensors())

    def __len__(self) -> int:
        return 1


class _Rows:
    """The rows of this rank's share of each batch, made when they are needed."""

    def __init__(self, order: SampleOrder, indices: torch.Tensor, first: int, share: Share) -> None:
        self._order = order
        self._indices = indices
        self._first = first
        self._share = share

    def tensors(self) -> Iterator[torch.Tensor]:
        for batch in range(self._first, self._order.batches):
            yield self._order.share(self._indices, batch, self._share)

    def __iter__(self) -> Iterator[list[int]]:
        return (rows.tolist() for rows in self.tensors())

    def __len__(self) -> int:
        return self._order.batches - self._first


def _fetch(
    dataset: "Dataset[Any] | Sequence[torch.Tensor]",
    indices: "_Rows | _LastBatch",
    workers: int,
    collate: Callable[[list[Any]], Batch] | None,
) -> Iterator[Batch]:
    tensors = dataset.tensors if isinstance(dataset, TensorDataset) else dataset
    if isinstance(tensors, tuple | list) and all(isinstance(t, torch.Tensor) for t in tensors):
        # Index tensors directly: a DataLoader would fetch and stack the rows one by one.
        *inputs, target = tensors
        for rows in indices.tensors():
            picked = tuple(tensor[rows] for tensor in inputs)
            yield (picked[0] if len(picked) == 1 else picked), target[rows]
        return
    loader: DataLoader[Any] = DataLoader(
        dataset,  # type: ignore[arg-type]
        batch_sampler=indices,
        num_workers=workers,
        collate_fn=collate,
    )
    for batch in loader:
        inputs_and_target: Batch = tuple(batch)
        yield inputs_and_target


def samples_in(dataset: "Dataset[Any] | Sequence[torch.Tensor]") -> int:
    """Return the number of samples of a dataset.

    Raises StrategyNotPossible when it cannot be indexed.
    """
    if isinstance(dataset, tuple | list) and dataset and isinstance(dataset[0], torch.Tensor):
        sizes = {len(tensor) for tensor in dataset}
        if len(sizes) != 1 or len(dataset) < 2:
            raise StrategyNotPossible(
                f"The tensors of the dataset hold {sorted(sizes)} samples; one number is needed, "
                "and at least inputs and a target.",
                next_step="Pass (inputs, target) with the same number of rows.",
            )
        return sizes.pop()
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        raise StrategyNotPossible(
            f"{type(dataset).__name__} has no length or no index, so its samples cannot be shared "
            "among ranks in one order.",
            next_step="Pass a map-style Dataset or a tuple of tensors; with a stream, cut it "
            "yourself by trainer.share and call trainer.step(batch).",
        )
    return len(cast("Sized", dataset))


def size_of(inputs: Inputs) -> int:
    """Return the number of samples in the inputs of a batch."""
    if isinstance(inputs, torch.Tensor):
        return len(inputs)
    tensors = inputs.values() if isinstance(inputs, Mapping) else inputs
    return len(next(iter(tensors)))


def to_device(batch: Batch, device: torch.device) -> Batch:
    """Return the batch on `device`."""
    inputs, target = batch
    return (
        _map(inputs, lambda tensor: tensor.to(device, non_blocking=True)),
        _map(target, lambda tensor: tensor.to(device, non_blocking=True)),
    )


def pieces(batch: Batch, count: int) -> list[Batch]:
    """Cut a batch into `count` micro-batches of as equal a size as possible."""
    inputs, target = batch
    if count == 1:
        return [batch]
    count = min(count, size_of(inputs))
    return [
        (
            _map(inputs, lambda tensor, n=n: tensor.tensor_split(count)[n]),  # type: ignore[misc]
            _map(target, lambda tensor, n=n: tensor.tensor_split(count)[n]),  # type: ignore[misc]
        )
        for n in range(count)
    ]


def call(module: Callable[..., Any], inputs: Inputs) -> Any:
    """Call a model with its inputs, by position or by name."""
    if isinstance(inputs, torch.Tensor):
        return module(inputs)
    if isinstance(inputs, Mapping):
        return module(**inputs)
    return module(*inputs)


def _map(tensors: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(tensors, torch.Tensor):
        return change(tensors)
    if isinstance(tensors, Mapping):
        return {name: change(tensor) for name, tensor in tensors.items()}
    return tuple(change(tensor) for tensor in tensors)
