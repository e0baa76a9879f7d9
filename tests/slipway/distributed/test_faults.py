"""Ranks that die or freeze: the others are told, soon, and what to do."""

import signal

import pytest

from tests.slipway.distributed.conftest import RunRanks

pytestmark = pytest.mark.ranks


@pytest.mark.parametrize("strategy", ["ddp", "zero3", "pipeline"])
def test_a_killed_rank_is_noticed_at_once(run_ranks: RunRanks, strategy: str) -> None:
    ends = run_ranks(
        2, "lose_a_peer", strategy=strategy, victim=1, how=int(signal.SIGKILL), fails=True
    )
    assert ends[0].code == 0, ends[0].log
    assert "Another rank died" in ends[0].value["told"]
    assert "logs of the other ranks" in ends[0].value["told"]
    assert ends[0].value["after_s"] < 3


def test_a_frozen_rank_is_given_up_after_the_time_limit(run_ranks: RunRanks) -> None:
    ends = run_ranks(
        2,
        "lose_a_peer",
        strategy="ddp",
        victim=1,
        how=int(signal.SIGSTOP),
        fails=True,
        timeout_s=12,
    )
    assert ends[0].code == 0, ends[0].log
    assert "given up after 3 s" in ends[0].value["told"]
    assert 2 < ends[0].value["after_s"] < 10
