"""Every strategy trains exactly what one process trains: same weights, same losses."""

from typing import Any

import pytest

from tests.slipway.distributed.conftest import RunRanks
from tests.turns import thorough_after

pytestmark = pytest.mark.ranks

TOLERANCE = 1e-9

# The first five are each kind once, and run in the gate.
STRATEGIES = [
    ("ddp", 2),
    ("zero3+offload", 2),
    ("pipeline:interleaved", 2),
    ("tensor", 2),
    ("ps=1:sync", 3),
    ("pipeline=2*tensor=2", 4),
    ("zero1", 2),
    ("zero2", 2),
    ("zero3", 2),
    ("zero3", 4),
    ("zero2+offload", 2),
    ("ddp=2*zero3", 4),
    ("ddp=2*zero2", 4),
    ("pipeline:gpipe", 2),
    ("pipeline:1f1b", 2),
    ("pipeline=4:1f1b", 4),
    ("tensor=2*ddp", 4),
    ("tensor=2*zero1", 4),
    ("tensor=2*zero3", 4),
    ("pipeline=2*ddp", 4),
    ("pipeline=2:interleaved*ddp", 4),
    ("pipeline=2*zero1", 4),
    ("pipeline=2*zero3", 4),
    ("pipeline=2:interleaved*zero3", 4),
    ("ps=2:sync", 4),
]


# The first four run in the gate.
WITH_WISHES: list[tuple[str, int, dict[str, Any]]] = [
    # A batch of 16 on 3 ranks: shares of 6, 5 and 5 samples, each counting for what it is.
    ("zero3", 3, {}),
    # Gradients of micro-batches add up; a learning-rate schedule moves on once a step.
    ("pipeline=2:1f1b", 2, {"microbatches": 8, "schedule": True}),
    # torch's own transformer layers: their linear pairs are split, their attention is not.
    ("tensor", 2, {"model": "encoder"}),
    # The norm of all gradients is limited, wherever their parts lie.
    ("zero3", 2, {"clip_norm": 0.1}),
    # And more of each.
    ("ddp", 3, {}),
    ("ps=1:sync", 4, {}),
    ("ddp", 2, {"microbatches": 3, "schedule": True}),
    ("zero3", 2, {"microbatches": 2, "schedule": True}),
    ("zero1", 2, {"microbatches": 2, "schedule": True}),
    ("ps=2:sync", 4, {"microbatches": 2, "schedule": True}),
    ("zero3", 2, {"model": "encoder"}),
    *(
        (strategy, world_size, {"clip_norm": 0.1})
        for strategy, world_size in (
            ("ddp", 2),
            ("zero1", 2),
            ("tensor", 2),
            ("pipeline", 2),
            ("pipeline=2*tensor=2", 4),
            ("ddp=2*zero2", 4),
            ("ps=1:sync", 3),
        )
    ),
    # Functions that write in place where FSDP2 could be watching.
    ("zero3", 2, {"model": "in_place"}),
    ("pipeline=2*zero2", 4, {"model": "in_place"}),
]


@pytest.mark.parametrize(("strategy", "world_size"), thorough_after(5, STRATEGIES))
def test_a_strategy_trains_what_one_process_trains(
    run_ranks: RunRanks, strategy: str, world_size: int
) -> None:
    ends = run_ranks(world_size, "train", strategy=strategy)
    assert ends[0].value["difference"] <= TOLERANCE
    assert ends[0].value["loss_difference"] <= TOLERANCE


@pytest.mark.parametrize(("strategy", "world_size", "wishes"), thorough_after(2, WITH_WISHES))
def test_wishes_change_how_it_is_computed_and_not_what(
    run_ranks: RunRanks, strategy: str, world_size: int, wishes: dict[str, Any]
) -> None:
    ends = run_ranks(world_size, "train", strategy=strategy, **wishes)
    assert ends[0].value["difference"] <= TOLERANCE
    assert ends[0].value["loss_difference"] <= TOLERANCE


@pytest.mark.parametrize(
    "strategy", ["ddp", "zero3", "zero3+offload", "pipeline=2*tensor=2", "ps=2:async", "auto"]
)
def test_every_word_trains_alone_as_well(run_ranks: RunRanks, strategy: str) -> None:
    ends = run_ranks(1, "train", strategy=strategy)
    assert ends[0].value["difference"] <= TOLERANCE


def test_the_environment_names_the_strategy_when_the_script_does_not(run_ranks: RunRanks) -> None:
    ends = run_ranks(2, "train", environment={"SLIPWAY_STRATEGY": "zero2"})
    assert {end.value["strategy"] for end in ends} == {"zero2"}
    assert ends[0].value["difference"] <= TOLERANCE


def test_auto_says_what_it_chose_and_why(run_ranks: RunRanks) -> None:
    ends = run_ranks(2, "train", strategy="auto")
    assert {end.value["strategy"] for end in ends} == {"ddp"}
    assert "fit on every device" in ends[0].value["reason"]
