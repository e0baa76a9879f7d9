"""Where a process stands in its job, by the environment, and what it is told when that is wrong."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from slipway.distributed import StrategyNotPossible
from slipway.distributed.optimizers import deal
from slipway.distributed.ranks import Ranks, choose_device, read_ranks, timeout_from
from slipway.distributed.shutdown import StopRequest
from tests.slipway.distributed.conftest import ROOT, RunRanks

pytestmark = pytest.mark.ranks

MEETING = {"MASTER_ADDR": "node-0", "MASTER_PORT": "29500"}


def test_without_variables_a_process_is_a_job_of_one() -> None:
    assert read_ranks({}) == Ranks(0, 1, 0, 1)


def test_the_variables_of_torchrun_say_where_a_process_stands() -> None:
    variables = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}
    assert read_ranks(variables | MEETING) == Ranks(5, 8, 1, 4)


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"RANK": "2", "WORLD_SIZE": "2"} | MEETING, "RANK=2 is not a rank"),
        ({"RANK": "-1", "WORLD_SIZE": "2"} | MEETING, "RANK=-1 is not a rank"),
        ({"RANK": "first", "WORLD_SIZE": "2"} | MEETING, 'RANK="first" is not a number'),
        ({"RANK": "0", "WORLD_SIZE": "2"}, "MASTER_ADDR does not say where ranks meet"),
    ],
)
def test_variables_that_make_no_sense_are_named(variables: dict[str, str], message: str) -> None:
    with pytest.raises(StrategyNotPossible) as caught:
        read_ranks(variables)
    assert message in caught.value.message
    assert "slipway train or torchrun" in str(caught.value.next_step)


def test_a_silent_peer_is_given_up_after_two_minutes_unless_said_otherwise() -> None:
    assert timeout_from({}, None) == 120
    assert timeout_from({"SLIPWAY_COLLECTIVE_TIMEOUT_S": "30"}, None) == 30
    assert timeout_from({"SLIPWAY_COLLECTIVE_TIMEOUT_S": "30"}, 5) == 5
    for wrong in ("soon", "-1", "nan", "1e9"):
        with pytest.raises(StrategyNotPossible):
            timeout_from({"SLIPWAY_COLLECTIVE_TIMEOUT_S": wrong}, None)


def test_a_machine_without_gpus_computes_on_the_cpu() -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    assert choose_device(Ranks(), None) == torch.device("cpu")
    with pytest.raises(StrategyNotPossible, match="which shows 0"):
        choose_device(Ranks(), "cuda")


def test_parameters_are_dealt_evenly_the_largest_first() -> None:
    owners = deal([10, 1, 1, 1, 7], 2)
    assert owners == [0, 1, 1, 1, 1]
    assert set(deal([5, 5, 5], 8)) == {0, 1, 2}


def test_sigterm_becomes_a_wish_and_the_scripts_own_handler_still_runs() -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: heard.append(number))
    try:
        request = StopRequest()
        requests = [request.requested]
        os.kill(os.getpid(), signal.SIGTERM)
        requests.append(request.requested)
        assert requests == [False, True]
        assert heard == [signal.SIGTERM]
        request.close()
        os.kill(os.getpid(), signal.SIGTERM)
        assert heard == [signal.SIGTERM] * 2
    finally:
        signal.signal(signal.SIGTERM, before)


SCRIPT = """
import logging
import torch
from torch.nn import functional
import slipway.distributed as dist

logging.basicConfig(level=logging.INFO)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
data = torch.randn(32, 4), torch.randint(2, (32,))
make_optimizer = lambda parameters: torch.optim.SGD(parameters, lr=0.1)
trainer = dist.prepare(model, make_optimizer, functional.cross_entropy)
for batch in trainer.shard(data, batch_size=8):
    loss = trainer.step(batch)
state = trainer.state_dict()
if trainer.is_main:
    total = sum(value.sum().item() for value in state.values())
    print(f"{trainer.world_size} ranks, {trainer.strategy}: {loss.item():.6f} {total:.6f}")
"""


def test_one_script_runs_alone_and_under_torchrun_unchanged(
    run_ranks: RunRanks, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    word = {"SLIPWAY_STRATEGY": "zero3"}
    alone = run_ranks(
        1,
        "run_script",
        environment=word,
        path=str(script),
        arguments=[],
        folder=str(tmp_path),
        alone=True,
    )[0].log.strip()
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [sys.executable, *launcher, str(script)],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "platform")}
        | {"OMP_NUM_THREADS": "1"}
        | word,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    several = done.stdout.strip()
    assert "1 ranks, zero3:" in alone
    assert several.startswith("2 ranks, zero3:")
    assert alone.rpartition("zero3:")[2] == several.rpartition("zero3:")[2]


def test_a_closed_trainer_holds_nothing_that_outlives_its_process_group(
    run_ranks: RunRanks,
) -> None:
    # What averages the gradients of ddp, freed after its group, could wait for ever.
    assert [end.value for end in run_ranks(2, "let_go", strategy="ddp")] == [True, True]


def test_a_script_that_names_another_strategy_than_the_command_is_told(
    run_ranks: RunRanks,
) -> None:
    ends = run_ranks(2, "train", strategy="ddp", environment={"SLIPWAY_STRATEGY": "zero3"})
    assert {end.value["strategy"] for end in ends} == {"ddp"}
    assert all("has no effect" in end.log for end in ends)


def test_a_word_that_does_not_fit_is_told_before_ranks_wait_for_each_other(
    run_ranks: RunRanks,
) -> None:
    started = time.monotonic()
    ends = run_ranks(3, "train", strategy="tensor=2*ddp=2", fails=True)
    assert time.monotonic() - started < 20
    assert [end.code for end in ends] == [1, 1, 1]
    assert all("is for 4 ranks; this job has 3 ranks" in end.log for end in ends)


def test_each_rank_holds_only_its_part(run_ranks: RunRanks) -> None:
    # Weights and optimizer state at rest, in shares of the whole.
    held = {
        word: [end.value for end in run_ranks(2, "held", strategy=word)]
        for word in ("ddp", "zero1", "zero2", "zero3", "pipeline", "tensor")
    }
    assert all(share == [1.0, 1.0] for share in held["ddp"])
    for share in held["zero1"]:
        assert share[0] == 1.0
        assert share[1] == pytest.approx(0.5, abs=0.05)
    for word in ("zero2", "zero3"):
        for share in held[word]:
            assert share == pytest.approx([0.5, 0.5], abs=0.1)
    assert sum(share[0] for share in held["pipeline"]) == pytest.approx(1.0)
    for share in held["tensor"]:
        assert share == pytest.approx([0.58, 0.58], abs=0.1)
