"""Each measure beside scikit-learn's on random data, in one window and in several."""

import math
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics

from portal.monitoring.analysis.profiles import profile
from portal.monitoring.statistics import quality, truths
from portal.monitoring.statistics.tasks import Basis, basis_of, canonical, misfit, observe

_CASES = settings(max_examples=60, deadline=None)
_NUMBERS = st.floats(-1e6, 1e6).map(lambda value: round(value, 3))
_PAIRS = st.lists(st.tuples(_NUMBERS, _NUMBERS), min_size=1, max_size=40)


def _measures(
    task: str,
    outputs: list[dict[str, Any]],
    true: list[Any],
    cut: int,
    *,
    label_type: str = "",
    groups: list[str] | None = None,
) -> tuple[dict[str, float], dict[str, str]]:
    """Return measures of two windows together."""
    basis = Basis(task, label_type)
    names = groups or [str(at) for at in range(len(true))]
    parts = [
        truths.sums_of(outputs[some], true[some], basis=basis, groups=names[some])
        for some in (slice(0, cut), slice(cut, None))
    ]
    sums = quality.add(part for part in parts if part is not None)
    assert sums is not None
    return quality.measures(sums)


@given(_PAIRS, st.integers(0, 40))
@_CASES
def test_regressions_and_forecasts_have_the_measures_of_sklearn(
    rows: list[tuple[float, float]], cut: int
) -> None:
    predicted, true = [a for a, _ in rows], [b for _, b in rows]
    outputs = [{"prediction": value} for value in predicted]
    figures, withheld = _measures("forecast", outputs, list(true), cut)
    assert figures["mae"] == pytest.approx(metrics.mean_absolute_error(true, predicted))
    assert figures["rmse"] == pytest.approx(metrics.root_mean_squared_error(true, predicted))
    assert figures["bias"] == pytest.approx(float(np.mean(np.subtract(predicted, true))), abs=1e-6)
    if any(true):
        wape = np.abs(np.subtract(predicted, true)).sum() / np.abs(true).sum()
        assert figures["wape"] == pytest.approx(wape)
    if all(true):
        mape = metrics.mean_absolute_percentage_error(true, predicted)
        assert figures["mape"] == pytest.approx(mape)
    else:
        assert "mape" in withheld
    if len(set(true)) > 1:
        assert figures["r2"] == pytest.approx(metrics.r2_score(true, predicted), rel=1e-6)
    else:
        assert "r2" in withheld


def test_the_variance_of_large_labels_close_together_is_not_cancelled() -> None:
    true = [1e9 + at for at in range(4)]
    outputs = [{"prediction": value + 0.5} for value in true]
    figures, _ = _measures("regression", outputs, list(true), 2)
    expected = metrics.r2_score(true, [value + 0.5 for value in true])
    assert figures["r2"] == pytest.approx(expected)


@pytest.mark.thorough
@given(
    st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=40),
    st.integers(0, 40),
)
@_CASES
def test_probabilities_have_the_measures_of_sklearn(
    rows: list[tuple[float, bool]], cut: int
) -> None:
    scores = [min(0.9995, round(score, 2) + 0.0005) for score, _ in rows]
    true = [truth for _, truth in rows]
    outputs = [{"prediction": score} for score in scores]
    figures, withheld = _measures("probability", outputs, list(true), cut)
    predicted = [score >= 0.5 for score in scores]
    assert figures["accuracy"] == pytest.approx(metrics.accuracy_score(true, predicted))
    assert figures["brier"] == pytest.approx(metrics.brier_score_loss(true, scores, labels=[0, 1]))
    assert figures["log_loss"] == pytest.approx(
        metrics.log_loss(true, scores, labels=[False, True])
    )
    _, _, f1, _ = metrics.precision_recall_fscore_support(
        true, predicted, average="macro", zero_division=0
    )
    assert figures["f1"] == pytest.approx(f1)
    if len(set(true)) == 2:
        assert figures["auc"] == pytest.approx(metrics.roc_auc_score(true, scores))
        expected = metrics.average_precision_score(true, scores)
        assert figures["average_precision"] == pytest.approx(expected)
    else:
        assert "one class" in withheld["auc"]


@pytest.mark.filterwarnings("ignore:A single label was found")
@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=40),
    st.integers(0, 40),
)
@_CASES
def test_classes_have_the_measures_of_sklearn(rows: list[tuple[int, int]], cut: int) -> None:
    predicted, true = [a for a, _ in rows], [b for _, b in rows]
    outputs = [{"prediction": float(value)} for value in predicted]
    figures, _ = _measures(
        "classification", outputs, list(map(str, true)), cut, label_type="integer"
    )
    precision, recall, f1, _ = metrics.precision_recall_fscore_support(
        true, predicted, average="macro", zero_division=0
    )
    assert figures["accuracy"] == pytest.approx(metrics.accuracy_score(true, predicted))
    assert (figures["precision"], figures["recall"]) == pytest.approx((precision, recall))
    assert figures["f1"] == pytest.approx(f1)
    sums = truths.sums_of(outputs, true, basis=Basis("classification", "integer"))
    assert sums is not None
    names = sorted({*predicted, *true})
    matrix = {(t, p): n for t, p, n in sums["confusion"]}
    expected = metrics.confusion_matrix(true, predicted, labels=names).tolist()
    confusion = [[matrix.get((str(t), str(p)), 0) for p in names] for t in names]
    assert confusion == expected


_QUERIES = st.lists(
    st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 3)), min_size=1, max_size=8),
    min_size=1,
    max_size=8,
)


@given(_QUERIES, st.integers(0, 8))
@_CASES
def test_rankings_have_the_measures_of_sklearn(
    queries: list[list[tuple[int, int]]], cut: int
) -> None:
    outputs = [{"prediction": float(score)} for rows in queries for score, _ in rows]
    true = [value for rows in queries for _, value in rows]
    groups = [str(at) for at, rows in enumerate(queries) for _ in rows]
    edge = sum(map(len, queries[:cut]))
    figures, withheld = _measures("ranking", outputs, list(true), edge, groups=groups)
    measured = [rows for rows in queries if len(rows) > 1 and any(value for _, value in rows)]
    if not measured:
        assert {"ndcg", "mrr"} <= withheld.keys()
        return
    expected = [
        metrics.ndcg_score([[value for _, value in rows]], [[score for score, _ in rows]])
        for rows in measured
    ]
    assert figures["ndcg"] == pytest.approx(sum(expected) / len(expected))
    single = [rows for rows in measured if sum(value > 0 for _, value in rows) == 1]
    if len(single) == len(measured):
        # With one relevant row it is the average precision of labels.
        precision = [
            metrics.label_ranking_average_precision_score(
                [[int(value > 0) for _, value in rows]], [[score for score, _ in rows]]
            )
            for rows in measured
        ]
        assert figures["mrr"] == pytest.approx(sum(precision) / len(precision))


_SETS = st.lists(
    st.tuples(
        st.lists(st.booleans(), min_size=3, max_size=3),
        st.lists(st.booleans(), min_size=3, max_size=3),
    ),
    min_size=1,
    max_size=30,
)


@pytest.mark.thorough
@given(_SETS, st.integers(0, 30))
@_CASES
def test_sets_of_labels_have_the_measures_of_sklearn(
    rows: list[tuple[list[bool], list[bool]]], cut: int
) -> None:
    names = ["a", "b", "c"]
    outputs = [dict(zip(names, map(float, flags), strict=True)) for flags, _ in rows]
    true = [[n for n, there in zip(names, fact, strict=True) if there] for _, fact in rows]
    figures, _ = _measures("multi_label", outputs, list(true), cut)
    predicted, fact = [list(a) for a, _ in rows], [list(b) for _, b in rows]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert figures["subset_accuracy"] == pytest.approx(metrics.accuracy_score(fact, predicted))
        assert figures["hamming_loss"] == pytest.approx(metrics.hamming_loss(fact, predicted))
        for name, average in (("f1", "macro"), ("f1_micro", "micro")):
            expected = metrics.f1_score(fact, predicted, average=average, zero_division=0)
            assert figures[name] == pytest.approx(expected)
        expected = metrics.jaccard_score(fact, predicted, average="samples", zero_division=0)
        assert figures["jaccard"] == pytest.approx(expected)


def test_values_are_compared_by_the_type_of_labels() -> None:
    assert {canonical(spelling, "boolean") for spelling in (True, 1, 1.0, "1", "true", "True")} == {
        "true"
    }
    assert {canonical(spelling, "integer") for spelling in (1, 1.0, "1", "1.0", "01", True)} == {
        "1"
    }
    assert canonical("007", "string") == "007"
    assert canonical(7, "string") == "7"
    assert canonical(2**60 + 1, "integer") == canonical(str(2**60 + 1), "integer")
    for value, kind in (("yes", "boolean"), (2, "boolean"), ("x", "number"), (1.5, "integer")):
        assert canonical(value, kind) is None
    assert misfit("x", Basis("regression"))
    assert not misfit("2.5", Basis("regression"))
    assert misfit("nan", Basis("regression"))


def test_an_estimate_is_calibrated_by_labels_that_are_booleans() -> None:
    scores = [[0.1, 0.9], [0.8, 0.2]] * 100
    rows = [[float(at)] for at in range(200)]
    profiled = profile(inputs=rows, predictions=scores, truth=[True, False] * 100)
    assert profiled["calibration"]["share"] == [1.0]


def test_tasks_are_inferred_with_a_reason() -> None:
    def task(values: list[Any], labels: list[Any], name: str = "prediction") -> str:
        outputs = {name: observe(None, values)}
        inferred = basis_of(
            task=None, label_type=None, signature=None, outputs=outputs, labels=labels
        )
        assert inferred.reason
        return f"{inferred.task}/{inferred.label_type}"

    assert task(["true", "false"], [1, 0]) == "classification/boolean"
    assert task(["007"], ["007"]) == "classification/string"
    assert task([0.5, 0.25], [1, 0]) == "probability/boolean"
    assert task([0.5, 7.25], [1, 0]) == "regression/number"
    assert task([1.0, 2.0], ["1.5"]) == "regression/number"
    assert task([1.0, 2.0], [1, 2]) == "classification/integer"
    assert task([float(at) for at in range(30)], [1]) == "regression/number"
    assert task([math.nan], []) == "/"
    assert task([1.0], [["a"]]) == "multi_label/string"
    signature = {"outputs": [{"name": "y", "datatype": "BOOL", "shape": [-1]}]}
    basis = basis_of(task=None, label_type=None, signature=signature, outputs={}, labels=[])
    assert (basis.task, basis.label_type, basis.is_certain) == ("classification", "boolean", True)
