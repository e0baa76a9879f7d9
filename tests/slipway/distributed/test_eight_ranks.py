"""Three ways to divide a training at once, which takes eight ranks."""

import pytest

from tests.slipway.distributed.conftest import RunRanks
from tests.slipway.distributed.test_equality import TOLERANCE

pytestmark = [pytest.mark.slow, pytest.mark.ranks]


@pytest.mark.parametrize("strategy", ["pipeline=2*tensor=2*ddp=2", "pipeline=2*tensor=2*zero3=2"])
def test_three_at_once_train_what_one_process_trains(run_ranks: RunRanks, strategy: str) -> None:
    ends = run_ranks(8, "train", strategy=strategy)
    assert ends[0].value["difference"] <= TOLERANCE
    assert ends[0].value["loss_difference"] <= TOLERANCE
