"""The statistics of drift against scipy, published values, and what must hold of every input."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats
from scipy.spatial import distance
from sklearn import isotonic, metrics

from portal.monitoring.statistics import distances, performance_estimate, quality
from portal.monitoring.statistics.baselines import (
    CATEGORY,
    NUMBER,
    Baseline,
    baseline_of,
    bin_values,
    numbers_of,
    texts_of,
)
from portal.monitoring.statistics.drift_verdicts import (
    DIFFERENT,
    NOT_ENOUGH,
    STEADY,
    compare,
    drifted,
)

_SAMPLES = arrays(
    np.float64, st.integers(2, 60), elements=st.floats(-1e6, 1e6, allow_nan=False, width=32)
)
_COUNTS = st.lists(st.integers(0, 500), min_size=2, max_size=12)
_CASES = settings(max_examples=60, deadline=None)


@given(_SAMPLES, _SAMPLES)
@_CASES
def test_kolmogorov_smirnov_is_that_of_scipy(
    first: np.ndarray[tuple[int], np.dtype[np.float64]],
    second: np.ndarray[tuple[int], np.dtype[np.float64]],
) -> None:
    expected = stats.ks_2samp(first, second, method="asymp")
    gap, p = distances.kolmogorov_smirnov(np.sort(first), np.sort(second))
    assert gap == pytest.approx(expected.statistic)
    if min(first.size, second.size) >= 20:
        # Both are approximations; over all samples of these sizes they are 0.044 apart at most,
        # and 0.013 where something is decided by them.
        assert p == pytest.approx(expected.pvalue, abs=0.05 if expected.pvalue > 0.1 else 0.015)


def test_the_p_value_of_kolmogorov_smirnov_is_that_of_scipy_in_the_tail() -> None:
    random = np.random.default_rng(1)
    base = np.sort(random.normal(size=5_000))
    for shift in (0.0, 0.05, 0.1, 0.2):
        window = np.sort(random.normal(shift, size=1_000))
        expected = stats.ks_2samp(base, window, method="asymp").pvalue
        _, p = distances.kolmogorov_smirnov(base, window)
        assert p == pytest.approx(expected, rel=0.1, abs=1e-12)


@given(_SAMPLES, _SAMPLES)
@_CASES
def test_wasserstein_is_that_of_scipy(
    first: np.ndarray[tuple[int], np.dtype[np.float64]],
    second: np.ndarray[tuple[int], np.dtype[np.float64]],
) -> None:
    expected = stats.wasserstein_distance(first, second)
    result = distances.wasserstein(np.sort(first), np.sort(second))
    assert result == pytest.approx(expected, rel=1e-9, abs=1e-6)


@given(st.data())
@_CASES
def test_jensen_shannon_is_the_square_of_scipys_distance(data: st.DataObject) -> None:
    size = data.draw(st.integers(2, 12))
    rows = st.lists(st.integers(0, 500), min_size=size, max_size=size).filter(any)
    first, second = data.draw(rows), data.draw(rows)
    expected = distance.jensenshannon(first, second, base=2) ** 2
    assert distances.jensen_shannon(first, second) == pytest.approx(float(expected), abs=1e-9)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=50))
@_CASES
def test_benjamini_hochberg_is_that_of_scipy(p_values: list[float]) -> None:
    expected = stats.false_discovery_control(p_values)
    assert distances.benjamini_hochberg(p_values) == pytest.approx(expected)


@given(st.lists(st.tuples(st.integers(20, 500), st.integers(20, 500)), min_size=2, max_size=10))
@_CASES
def test_chi_square_is_that_of_scipy_where_enough_is_expected(
    columns: list[tuple[int, int]],
) -> None:
    first, second = zip(*columns, strict=True)
    expected = stats.chi2_contingency([first, second], correction=False)
    if expected.expected_freq.min() < 5:
        return
    statistic, p, freedom = distances.chi_square(first, second)
    assert (statistic, p) == pytest.approx((expected.statistic, expected.pvalue))
    assert freedom == expected.dof


def test_published_values_come_out() -> None:
    # Benjamini and Hochberg 1995, their 15 p-values: four are significant at 0.05.
    published = [
        *(0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344),
        *(0.0459, 0.3240, 0.4262, 0.5719, 0.6528, 0.7590, 1.0000),
    ]
    assert int((distances.benjamini_hochberg(published) <= 0.05).sum()) == 4
    # The critical value of chi-square for ten bins at 5 % is 16.919.
    assert stats.chi2.sf(16.919, 9) == pytest.approx(0.05, abs=1e-4)
    # 20 % of 1,000 moved from one of two even bins to the other: PSI = 0.2 * ln((.7/.5)/(.3/.5)).
    assert distances.psi([500_000, 500_000], [700_000, 300_000]) == pytest.approx(
        0.2 * math.log(7 / 3), rel=1e-4
    )
    # Two standard normals 0.3 apart lie 2 * Phi(0.15) - 1 = 0.1192 apart.
    grid = stats.norm.ppf(np.linspace(0.0005, 0.9995, 1000))
    gap, _ = distances.kolmogorov_smirnov(grid, grid + 0.3)
    assert gap == pytest.approx(0.1192, abs=0.002)
    assert distances.wasserstein(grid, grid + 0.3) == pytest.approx(0.3)


@given(_COUNTS, st.data())
@_CASES
def test_distances_are_never_negative_and_nothing_is_far_from_itself(
    first: list[int], data: st.DataObject
) -> None:
    rows = st.lists(st.integers(0, 500), min_size=len(first), max_size=len(first))
    second = data.draw(rows)
    for measure in (distances.psi, distances.jensen_shannon, distances.total_variation):
        assert measure(first, first) == pytest.approx(0)
        assert 0 <= measure(first, second) < math.inf
    assert 0 <= distances.psi_p_value(first, second) <= 1
    assert 0 <= distances.chi_square(first, second)[1] <= 1


def test_psi_without_drift_follows_chi_square() -> None:
    random = np.random.default_rng(7)
    p_values = []
    for _ in range(400):
        first = random.multinomial(2_000, [0.1] * 10)
        second = random.multinomial(500, [0.1] * 10)
        p_values.append(distances.psi_p_value(first, second))
    assert stats.kstest(p_values, "uniform").pvalue > 0.001


_ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.floats(allow_nan=True, allow_infinity=True),
    st.integers(-(2**60), 2**60),
    st.text(max_size=8),
)


@given(
    st.lists(_ODD, max_size=80), st.lists(_ODD, max_size=80), st.sampled_from([NUMBER, CATEGORY])
)
@_CASES
def test_every_value_falls_into_exactly_one_bin(
    known: list[object], new: list[object], kind: str
) -> None:
    base = baseline_of("feature", known, kind=kind)
    assert sum(base.counts) == len(known)
    counts = bin_values(base, new)
    assert len(counts) == len(base.counts)
    assert counts.sum() == len(new)
    assert list(base.edges) == sorted(set(base.edges))
    (result,) = compare([base], {"feature": new})
    assert result.verdict == NOT_ENOUGH
    assert Baseline.from_json(base.as_json()) == base


def test_missing_infinite_and_unseen_values_have_bins_of_their_own() -> None:
    numbers = baseline_of("age", [*range(100)], kind=NUMBER)
    assert bin_values(numbers, [None, math.nan, math.inf, -math.inf, 5])[-2:].tolist() == [2, 2]
    names = baseline_of("city", ["Bern"] * 60 + ["Ulm"] * 40, kind=CATEGORY)
    assert bin_values(names, ["Bern", "Oslo", None]).tolist() == [1, 0, 0, 1, 1]
    assert texts_of([True, 3.0, None, math.nan]) == ["true", "3", None, None]
    assert np.isnan(numbers_of(["x", 1])).tolist() == [True, False]


def test_a_difference_needs_significance_and_effect_and_enough() -> None:
    random = np.random.default_rng(3)
    base = [baseline_of(f"x{i}", random.normal(size=5_000), kind=NUMBER) for i in range(20)]
    names = [feature.name for feature in base]

    def window(size: int, shift: float) -> dict[str, np.ndarray[tuple[int], np.dtype[np.float64]]]:
        columns = {name: random.normal(size=size) for name in names}
        columns["x7"] = columns["x7"] + shift
        return columns

    assert {result.verdict for result in compare(base, window(199, 3))} == {NOT_ENOUGH}
    assert {result.verdict for result in compare(base, window(1_000, 0))} == {STEADY}
    # Significant and harmless: a twelfth of a standard deviation on 50,000 rows.
    (harmless,) = [result for result in compare(base, window(50_000, 0.08)) if result.name == "x7"]
    assert (harmless.p_adjusted < 0.05, harmless.verdict) == (True, STEADY)
    shifted = compare(base, window(1_000, 0.3))
    assert [result.name for result in shifted if result.verdict == DIFFERENT] == ["x7"]
    assert drifted([], shifted) == []
    assert drifted(["x7"], shifted) == ["x7"]


def test_missing_values_and_unseen_names_are_differences_too() -> None:
    random = np.random.default_rng(5)
    number = baseline_of("age", random.normal(size=2_000), kind=NUMBER)
    holes = random.normal(size=500)
    holes[:60] = np.nan
    (result,) = compare([number], {"age": holes})
    assert (result.verdict, result.missing_share) == (DIFFERENT, 0.12)
    name = baseline_of("city", ["Bern", "Ulm"] * 500, kind=CATEGORY)
    (result,) = compare([name], {"city": ["Oslo"] * 100 + ["Bern", "Ulm"] * 200})
    assert result.verdict == DIFFERENT


@given(
    arrays(np.float64, 60, elements=st.integers(0, 10_000).map(lambda n: n / 10_000)),
    arrays(np.float64, 60, elements=st.sampled_from([0.0, 1.0])),
)
@_CASES
def test_calibration_is_isotonic_regression(
    confidence: np.ndarray[tuple[int], np.dtype[np.float64]],
    is_right: np.ndarray[tuple[int], np.dtype[np.float64]],
) -> None:
    confidence = np.unique(confidence)
    is_right = is_right[: confidence.size]
    calibration = performance_estimate.calibrate(confidence, is_right)
    expected = isotonic.IsotonicRegression().fit_transform(confidence, is_right)
    # Between its steps ours is a line; the steps themselves are those of the regression.
    assert calibration.share == pytest.approx(np.unique(np.round(expected, 9)).tolist())


def test_the_estimate_is_near_the_truth_while_only_inputs_change_and_blind_to_concepts() -> None:
    random = np.random.default_rng(11)

    def sample(centre: float) -> tuple[np.ndarray, np.ndarray]:
        x = random.normal(centre, 1, 20_000)
        score = 1 / (1 + np.exp(-2 * x))
        return np.maximum(score, 1 - score), random.random(20_000) < np.maximum(score, 1 - score)

    confidence, right = sample(1.0)
    calibration = performance_estimate.calibrate(confidence, right.astype(float))
    harder, right_now = sample(0.0)
    estimate = performance_estimate.estimate_accuracy(harder, calibration)
    assert estimate is not None
    assert estimate.value == pytest.approx(float(right_now.mean()), abs=0.02)
    assert estimate.low < estimate.value < estimate.high
    # Every answer is the other one now, and the model is as sure as before.
    assert estimate.value - float((~right_now).mean()) > 0.3
    ups, fps, fns, downs = performance_estimate.expected_confusion(harder, calibration)
    assert ups + fps + fns + downs == pytest.approx(harder.size)


@given(
    st.lists(st.tuples(st.booleans(), st.floats(0, 1)), min_size=2, max_size=60), st.integers(1, 59)
)
@_CASES
def test_sums_of_parts_are_the_sums_of_all_and_figures_are_sklearns(
    rows: list[tuple[bool, float]], cut: int
) -> None:
    true = ["yes" if truth else "no" for truth, _ in rows]
    score = [round(value, 2) + 0.0005 for _, value in rows]
    score = [min(1.0, value) for value in score]
    predicted = ["yes" if value >= 0.5 else "no" for value in score]
    sure = [max(value, 1 - value) for value in score]

    def of(some: slice) -> quality.Sums:
        return quality.sums_of_classes(
            predicted[some], true[some], sure[some], list(score[some]), "yes"
        )

    whole = of(slice(None))
    parts = quality.add([of(slice(0, cut)), of(slice(cut, None))])
    assert parts is not None
    figures, expected = quality.figures(parts), quality.figures(whole)
    assert figures == pytest.approx(expected)
    assert figures["accuracy"] == pytest.approx(metrics.accuracy_score(true, predicted))
    assert figures["f1"] == pytest.approx(
        metrics.f1_score(true, predicted, average="macro", zero_division=0)
    )
    if len(set(true)) == 2:
        auc = metrics.roc_auc_score([label == "yes" for label in true], score)
        assert figures["auc"] == pytest.approx(auc)


def test_regression_errors_add_up() -> None:
    random = np.random.default_rng(2)
    true = random.normal(size=300)
    predicted = true + random.normal(0.1, 0.5, size=300)
    parts = quality.add(
        quality.sums_of_numbers(predicted[a:b].tolist(), true[a:b].tolist())
        for a, b in ((0, 100), (100, 300))
    )
    assert parts is not None
    figures = quality.figures(parts)
    assert figures["mae"] == pytest.approx(metrics.mean_absolute_error(true, predicted))
    assert figures["rmse"] == pytest.approx(metrics.root_mean_squared_error(true, predicted))
    assert figures["r2"] == pytest.approx(metrics.r2_score(true, predicted))
