"""The text example: an encoder trained from scratch, saved, loaded and asked."""

import re

import pytest

from tests.examples.conftest import Run

EXAMPLE = "text"
pytestmark = [pytest.mark.integration, pytest.mark.torch]


@pytest.mark.thorough
def test_the_encoder_learns_and_is_asked_without_slipway(without_slipway: Run) -> None:
    trained = without_slipway("train.py", "--epochs", "3", "--texts", "480", "--lr", "3e-3")
    assert re.search(r"^480 texts, \d+ words, 9 sections$", trained, re.MULTILINE)
    losses = [float(loss) for loss in re.findall(r"loss ([0-9.]+)", trained)]
    assert losses == sorted(losses, reverse=True)
    reached = re.search(r"unseen texts: ([0-9.]+) \(always the same: ([0-9.]+)\)", trained)
    assert reached
    assert float(reached[1]) > float(reached[2])
    output = without_slipway("ask.py", "--texts", "12", "--clients", "4")
    assert [line.split(":")[0] for line in output.splitlines()] == ["1 at once", "4 at once"]
    rights = re.findall(r"(\d+) of 12 right", output)
    assert len(set(rights)) == 1, "who asks beside it changes no answer"
