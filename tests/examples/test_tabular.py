"""The tabular example: trained, asked about later patients, compared with late labels."""

import re

import pytest

from tests.examples.conftest import Run

pytestmark = pytest.mark.integration

EXAMPLE = "tabular"


@pytest.mark.thorough
def test_labels_that_come_late_meet_their_predictions_without_slipway(without_slipway: Run) -> None:
    trained = without_slipway("train.py")
    errors = re.search(r"patients: ([0-9.]+) \(always the mean: ([0-9.]+)\)", trained)
    assert errors
    assert float(errors[1]) < 0.85 * float(errors[2])
    assert without_slipway("follow_up.py", "predict") == "wrote 100 lines of predictions.csv\n"
    early = without_slipway("follow_up.py", "label", "--share", "0.3")
    assert "mean error of 30 labelled predictions: " in early
    late = without_slipway("follow_up.py", "label")
    assert f"mean error of 100 labelled predictions: {errors[1]}\n" in late
