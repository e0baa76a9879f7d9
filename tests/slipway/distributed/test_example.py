"""The example of scikit-learn's digits: by DDP on two ranks, and again where it was interrupted."""

import re
from pathlib import Path

import pytest
import torch

from tests.slipway.distributed.conftest import ROOT, RunRanks

pytestmark = pytest.mark.ranks

SCRIPT = ROOT / "examples" / "digits" / "train.py"


@pytest.mark.thorough
def test_two_ranks_learn_the_digits_and_go_on_where_they_were(
    run_ranks: RunRanks, tmp_path: Path
) -> None:
    def train(epochs: int) -> str:
        arguments = ["--epochs", str(epochs), "--strategy", "ddp"]
        ends = run_ranks(
            2, "run_script", path=str(SCRIPT), arguments=arguments, folder=str(tmp_path)
        )
        return ends[0].log

    first, second = train(1), train(5)

    assert "2 ranks by ddp: ddp was asked for." in first
    assert "rank 0 goes on after step 22" in second
    assert "epoch 1 " not in second
    reached = re.search(r"accuracy on 360 unseen digits: (0\.\d+)", second)
    assert reached is not None
    assert float(reached[1]) > 0.9
    weights = torch.load(tmp_path / "checkpoints" / "model.pt", weights_only=True)
    assert weights["0.weight"].shape == (128, 64)


def test_the_example_asks_for_the_versions_that_are_tested() -> None:
    requirements = (SCRIPT.parent / "requirements.txt").read_text().split()
    tested = (ROOT / "requirements" / "dev.txt").read_text().splitlines()
    assert requirements
    assert set(requirements) <= set(tested)
