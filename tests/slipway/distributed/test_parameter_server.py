"""The parameter server: what it computes, whom it waits for, and whom it does not let in."""

import signal

import pytest

from tests.slipway.distributed.conftest import RunRanks
from tests.turns import thorough_after

pytestmark = pytest.mark.ranks

TOLERANCE = 1e-9


@pytest.mark.parametrize(
    ("strategy", "world_size"),
    thorough_after(1, [("ps=1:async", 2), ("ps=2:async", 3), ("ps=1:ssp=1", 2), ("ps=2:ssp=3", 3)]),
)
def test_an_asynchronous_server_with_one_worker_trains_what_one_process_trains(
    run_ranks: RunRanks, strategy: str, world_size: int
) -> None:
    ends = run_ranks(world_size, "train", strategy=strategy)
    assert ends[0].value["difference"] <= TOLERANCE
    assert ends[0].value["loss_difference"] <= TOLERANCE


@pytest.mark.parametrize("strategy", thorough_after(1, ["ps=1:ssp=2", "ps=1:async", "ps=2:async"]))
def test_several_asynchronous_workers_reach_the_loss_of_one_process(
    run_ranks: RunRanks, strategy: str
) -> None:
    servers = int(strategy[3])
    ends = run_ranks(servers + 2, "train_longer", strategy=strategy, epochs=6)
    assert ends[0].value["loss"] <= 1.1 * ends[0].value["reference"]


@pytest.mark.parametrize("strategy", thorough_after(1, ["ps=1:async", "ps=2:ssp=1", "ps=1:sync"]))
def test_the_others_go_on_when_a_worker_is_killed(run_ranks: RunRanks, strategy: str) -> None:
    servers = int(strategy[3])
    ends = run_ranks(
        servers + 3,
        "lose_a_worker",
        strategy=strategy,
        epochs=3,
        victim=1,
        at_step=4,
        fails=True,
        grace_s=40,
    )
    codes = [end.code for end in ends]
    assert codes == [0, -signal.SIGKILL, *[0] * (servers + 1)], "\n".join(e.log for e in ends)
    assert ends[0].value["steps"] == ends[2].value["steps"] == 18
    assert ends[0].value["keys"] == ends[2].value["named"]
    assert any("Worker 1 was lost" in end.log for end in ends)
