"""Predictions beside the truth: whatever the outputs look like, the figures are scikit-learn's."""

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics

from portal.monitoring.statistics import quality, truths

_CASES = settings(max_examples=60, deadline=None)
_LOGITS = st.lists(
    st.tuples(st.lists(st.floats(-9, 9), min_size=3, max_size=3), st.integers(0, 2)),
    min_size=1,
    max_size=40,
)


def _figures(outputs: list[dict[str, Any]], true: list[Any]) -> dict[str, float]:
    sums = truths.sums_of(outputs, true)
    assert sums is not None
    return quality.figures(sums)


@given(_LOGITS)
@_CASES
def test_of_scores_that_are_no_probabilities_the_highest_is_what_was_said(
    rows: list[tuple[list[float], int]],
) -> None:
    outputs = [{f"prediction[{at}]": cell for at, cell in enumerate(cells)} for cells, _ in rows]
    true = [truth for _, truth in rows]
    # Of equal scores the later class counts.
    predicted = [max(range(3), key=lambda at: (cells[at], at)) for cells, _ in rows]
    figures = _figures(outputs, true)
    assert figures["accuracy"] == pytest.approx(metrics.accuracy_score(true, predicted))
    assert figures.keys() == {"accuracy", "precision", "recall", "f1"}


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=2, max_size=40))
@_CASES
def test_of_two_classes_the_area_under_the_curve_is_that_of_the_one_looked_for(
    rows: list[tuple[float, bool]],
) -> None:
    scores = [min(0.9995, round(score, 2) + 0.0005) for score, _ in rows]
    outputs = [
        {
            "no": 1 - score,
            "yes": score,
            "class": "yes" if score >= 0.5 else "no",
            "confidence": max(score, 1 - score),
        }
        for score in scores
    ]
    true = ["yes" if truth else "no" for _, truth in rows]
    assert truths.needed(list(outputs[0])) == ["class", "confidence", "no", "yes"]
    figures = _figures(outputs, true)
    if len(set(true)) == 2:
        expected = metrics.roc_auc_score([truth for _, truth in rows], scores)
        assert figures["auc"] == pytest.approx(expected)
    else:
        assert "auc" not in figures


def test_quantities_and_classes_are_told_apart() -> None:
    assert _figures([{"prediction": 2.0}, {"prediction": 3.0}], [2.5, 3.0])["mae"] == 0.25
    assert _figures([{"prediction": 2.0}, {"prediction": 3.0}], [2, 2])["accuracy"] == 0.5
    assert _figures([{"prediction": None}, {"prediction": 3.5}], [1.5, 3.0])["mae"] == 0.5
    assert _figures([{"label": "cat"}, {"label": "dog"}], ["cat", "cat"])["accuracy"] == 0.5
    # One of several outputs: which of them the truth is about is not known.
    assert truths.sums_of([{"prediction[0]": 1.5, "prediction[1]": 7.0}], [1.25]) is None
    assert truths.sums_of([], []) is None


def test_names_of_classes_are_written_alike_however_large_they_are() -> None:
    expected = ["true", "7", "7", "1234567", "1234567", "0.5", "cat", None, None]
    given_ = [True, 7, 7.0, 1_234_567, 1_234_567.0, 0.5, "cat", None, math.nan]
    assert [truths.name_of(value) for value in given_] == expected
