"""Every sample of a batch goes to one rank, in an order that does not depend on their number."""

import logging
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from slipway.distributed import Share, StrategyNotPossible
from slipway.distributed.batches import Feed, SampleOrder, pieces, samples_in

pytestmark = pytest.mark.ranks


def _seen(
    feed: Feed, samples: int, size: int, *, epochs: int, stop_after: int = 10**9
) -> list[int]:
    """Return the samples that a rank trains on, in order."""
    data = torch.arange(samples)
    seen: list[int] = []
    order = SampleOrder(samples, size)
    for number, (inputs, _) in enumerate(
        feed.batches((data, data), order, epochs=epochs, workers=0, collate=None), start=1
    ):
        assert isinstance(inputs, torch.Tensor)
        seen += inputs.tolist()
        feed.used()
        if number == stop_after:
            break
    return seen


@given(samples=st.integers(8, 60), size=st.integers(4, 8), ranks=st.integers(1, 4))
def test_ranks_together_see_what_one_rank_sees(samples: int, size: int, ranks: int) -> None:
    alone = _seen(Feed(Share()), samples, size, epochs=2)
    shares = [_seen(Feed(Share(n, ranks)), samples, size, epochs=2) for n in range(ranks)]
    assert sorted(alone) == sorted(sample for share in shares for sample in share)
    assert len(alone) == 2 * (samples // size) * size


@given(stop_after=st.integers(1, 11), ranks=st.integers(1, 4))
def test_training_goes_on_where_it_was_with_any_number_of_ranks(
    stop_after: int, ranks: int
) -> None:
    before = Feed(Share())
    seen = _seen(before, 24, 4, epochs=2, stop_after=stop_after)
    rest: list[int] = []
    for number in range(ranks):
        feed = Feed(Share(number, ranks))
        feed.load_state(before.state())
        rest += _seen(feed, 24, 4, epochs=2)
    assert sorted(seen + rest) == sorted(list(range(24)) * 2)


def test_epochs_are_shuffled_differently_and_seeds_too() -> None:
    first = SampleOrder(50, 10, seed=1)
    assert first.epoch(0).tolist() != first.epoch(1).tolist()
    assert first.epoch(1).tolist() != SampleOrder(50, 10, seed=0).epoch(0).tolist()
    assert SampleOrder(5, 1, shuffle=False).epoch(3).tolist() == [0, 1, 2, 3, 4]


def test_a_batch_that_was_handed_out_but_not_used_does_not_count() -> None:
    feed = Feed(Share())
    data = torch.arange(8)
    batches = feed.batches((data, data), SampleOrder(8, 2), epochs=1, workers=0, collate=None)
    next(batches)
    assert feed.state()["samples"] == 0
    feed.used()
    assert feed.state()["samples"] == 2


def test_a_dataset_of_other_data_is_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    feed = Feed(Share())
    feed.load_state({"epoch": 0, "samples": 4, "of": 99, "seed": 0})
    with caplog.at_level(logging.WARNING):
        _seen(feed, 8, 2, epochs=1)
    assert "seen twice or not at all" in caplog.text


class _Squares(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.tensor([float(index)]), torch.tensor(index * index)


def test_datasets_of_every_kind_give_the_same_batches() -> None:
    dataset = _Squares()
    tensors = tuple(
        torch.stack(column) for column in zip(*(dataset[n] for n in range(10)), strict=True)
    )
    order = SampleOrder(10, 4)
    results = [
        list(Feed(Share(1, 2)).batches(kind, order, epochs=1, workers=0, collate=None))
        for kind in (dataset, TensorDataset(*tensors), tensors)
    ]
    for other in results[1:]:
        for (x, y), (x2, y2) in zip(results[0], other, strict=True):
            assert isinstance(x, torch.Tensor)
            assert isinstance(y, torch.Tensor)
            assert torch.equal(x, torch.as_tensor(x2))
            assert torch.equal(y, torch.as_tensor(y2))


class _Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(3))


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        (_Stream(), "cannot be shared"),
        ((torch.zeros(3),), "at least inputs and a target"),
        ((torch.zeros(3), torch.zeros(4)), "[3, 4] samples"),
    ],
)
def test_a_dataset_that_cannot_be_shared_is_told_why(dataset: object, message: str) -> None:
    with pytest.raises(StrategyNotPossible) as caught:
        samples_in(dataset)  # type: ignore[arg-type]
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("size", "ranks", "multiple", "message"),
    [
        (0, 1, 1, "cannot be drawn"),
        (50, 1, 1, "cannot be drawn from 24"),
        (2, 4, 1, "some get none"),
        (6, 2, 4, "2 shares x 2 micro-batches"),
    ],
)
def test_a_batch_size_that_does_not_fit_says_which_would(
    size: int, ranks: int, multiple: int, message: str
) -> None:
    feed = Feed(Share(0, ranks), batch_multiple=multiple)
    with pytest.raises(StrategyNotPossible) as caught:
        _seen(feed, 24, size, epochs=1)
    assert message in caught.value.message
    assert "batch_size" in str(caught.value.next_step)


def test_micro_batches_together_are_the_batch() -> None:
    batch = ({"a": torch.arange(7), "b": torch.ones(7, 2)}, torch.arange(7))
    parts = pieces(batch, 3)
    assert [len(target) for _, target in parts] == [3, 2, 2]
    assert torch.equal(torch.cat([inputs["a"] for inputs, _ in parts]), batch[1])  # type: ignore[index, call-overload]
    assert len(pieces(batch, 50)) == 7
