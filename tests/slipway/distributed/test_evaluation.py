"""Evaluating amid training: the same figure as one process, and training goes on undisturbed."""

import math

import pytest

from tests.slipway.distributed.conftest import RunRanks
from tests.turns import thorough_after

pytestmark = pytest.mark.ranks

TOLERANCE = 1e-9


@pytest.mark.parametrize(
    ("strategy", "world_size"),
    thorough_after(
        3,
        [
            ("ddp", 2),
            ("zero3", 3),
            ("pipeline:1f1b", 2),
            ("tensor", 2),
            ("zero3+offload", 2),
            ("pipeline:interleaved", 2),
            ("pipeline=2*zero3", 4),
            ("ps=1", 3),
            ("ddp", 1),
        ],
    ),
)
def test_all_ranks_learn_what_one_process_measures(
    run_ranks: RunRanks, strategy: str, world_size: int
) -> None:
    ends = run_ranks(world_size, "evaluate", strategy=strategy)
    first = ends[0].value
    assert abs(first["loss"] - first["loss_alone"]) <= TOLERANCE
    assert abs(first["accuracy"] - first["accuracy_alone"]) <= TOLERANCE
    assert first["difference"] <= TOLERANCE
    trainers = [end.value["loss"] for end in ends if not math.isnan(end.value["loss"])]
    assert len(trainers) == world_size - strategy.startswith("ps")
    assert trainers == pytest.approx([first["loss"]] * len(trainers), abs=TOLERANCE)
