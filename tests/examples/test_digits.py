"""The example of digits: trained alone, by torchrun, and by three strategies side by side."""

import re

import pytest

from tests.examples.conftest import Run

EXAMPLE = "digits"
NEEDS_SDK = True  # the strategies are words of it
pytestmark = [pytest.mark.integration, pytest.mark.torch]


def test_one_process_learns_the_digits(run: Run) -> None:
    trained = run("train.py", "--epochs", "3")
    reached = re.search(r"accuracy on 360 unseen digits: ([0-9.]+)", trained)
    assert reached
    assert float(reached[1]) > 0.7


@pytest.mark.thorough
def test_torchrun_starts_the_same_script(run: Run) -> None:
    ranks = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    trained = run(*ranks, "train.py", "--epochs", "1", "--strategy", "ddp")
    assert "2 ranks by ddp: ddp was asked for." in trained
    assert "accuracy on 360 unseen digits: " in trained


def test_a_search_trains_one_classifier_for_each_combination(run: Run) -> None:
    printed = run("search.py", "--epochs", "2").splitlines()
    assert len([line for line in printed if re.match(r"lr [0-9.]+, (16|64) hidden: ", line)]) == 6
    assert re.fullmatch(r"accuracy on 360 unseen digits: 0\.[0-9]+ at best", printed[-1])


def test_a_trial_and_the_steps_of_the_pipeline_run_alone(run: Run) -> None:
    trained = run("tune.py", "--epochs", "2", "--lr", "0.01").splitlines()
    assert [line.split(":")[0] for line in trained] == ["epoch 1", "epoch 2"]
    chosen = run("-c", "import flow; flow.digits(neighbours=[2])")
    assert re.fullmatch(r"2 neighbours: accuracy 0\.9[0-9]+", chosen.strip())


@pytest.mark.slow
def test_three_strategies_reach_the_same_weights(run: Run) -> None:
    rows = [line.split() for line in run("compare.py", "--epochs", "1").splitlines()[1:]]
    assert [row[:2] for row in rows] == [["ddp", "2"], ["zero3", "2"], ["ps=1", "3"]]
    assert all(float(row[3]) > 0 for row in rows)
    assert all(float(row[4]) < 1e-3 for row in rows), "rounding alone may tell them apart"
    assert len({row[2] for row in rows}) == 1


def test_the_data_is_written_as_a_table(run: Run) -> None:
    run("make_csv.py", "digits.csv")
    shown = run("-c", "print(len(open('digits.csv').readlines()))")
    assert shown == "1798\n"
