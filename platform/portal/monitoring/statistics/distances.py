"""Distances between two samples, or two histograms, and their p-values."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import special  # scipy.stats takes a second of processor time to import

Floats = NDArray[np.float64]
Numbers = Sequence[float] | Sequence[int] | NDArray[np.int64] | Floats
# Chi-square needs this expected count in each bin. Bins with less are merged.
_EXPECTED = 5.0


def psi(base: Numbers, window: Numbers) -> float:
    """Return the population stability index of two histograms.

    Half a count is added to each bin, so that an empty one does not make it infinite.
    """
    first, second = _smooth(base), _smooth(window)
    return float(np.sum((second - first) * np.log(second / first)))


def psi_p_value(base: Numbers, window: Numbers) -> float:
    """Return the p-value of the PSI without drift.

    PSI / (1/n + 1/m) then follows a chi-square distribution with one degree of freedom less than
    there are non-empty bins.
    """
    first, second = np.asarray(base, float), np.asarray(window, float)
    used = int(np.count_nonzero(first + second))
    if used < 2 or not first.sum() or not second.sum():
        return 1.0
    there = (first + second) > 0
    scaled = psi(first[there], second[there]) / (1 / first.sum() + 1 / second.sum())
    return float(special.chdtrc(used - 1, scaled))


def _smooth(counts: Numbers) -> Floats:
    padded = np.asarray(counts, dtype=np.float64) + 0.5
    return np.asarray(padded / padded.sum())


def jensen_shannon(base: Numbers, window: Numbers) -> float:
    """Return the Jensen-Shannon divergence of two histograms in bits: 0 equal, 1 disjoint."""
    first, second = _shares(base), _shares(window)
    middle = (first + second) / 2
    return max(0.0, (_kullback_leibler(first, middle) + _kullback_leibler(second, middle)) / 2)


def _kullback_leibler(first: Floats, second: Floats) -> float:
    there = first > 0
    return float(np.sum(first[there] * np.log2(first[there] / second[there])))


def total_variation(base: Numbers, window: Numbers) -> float:
    """Return the total variation distance of two histograms, from 0 to 1."""
    return float(np.abs(_shares(base) - _shares(window)).sum() / 2)


def _shares(counts: Numbers) -> Floats:
    array = np.asarray(counts, dtype=np.float64)
    total = array.sum()
    return array / total if total else array


def kolmogorov_smirnov(base: Floats, window: Floats) -> tuple[float, float]:
    """Return the largest gap between two distribution functions, and its p-value.

    Both samples are sorted and finite. The p-value is that of large samples, with the correction of
    Stephens (1970) for small ones.
    """
    if not base.size or not window.size:
        return 0.0, 1.0
    points = np.concatenate([base, window])
    first = np.searchsorted(base, points, side="right") / base.size
    second = np.searchsorted(window, points, side="right") / window.size
    gap = float(np.abs(first - second).max())
    root = (base.size * window.size / (base.size + window.size)) ** 0.5
    return gap, float(special.kolmogorov(gap * (root + 0.12 + 0.11 / root)))


def wasserstein(base: Floats, window: Floats) -> float:
    """Return the 1-Wasserstein distance of two samples, which are sorted and finite."""
    if not base.size or not window.size:
        return 0.0
    points = np.sort(np.concatenate([base, window]))
    first = np.searchsorted(base, points[:-1], side="right") / base.size
    second = np.searchsorted(window, points[:-1], side="right") / window.size
    return float(np.sum(np.abs(first - second) * np.diff(points)))


def chi_square(base: Numbers, window: Numbers) -> tuple[float, float, int]:
    """Return statistic, p-value and degrees of freedom of two histograms (two samples).

    Bins with an expected count below five are merged.
    """
    table = np.array([base, window], dtype=np.float64)
    table = table[:, table.sum(axis=0) > 0]
    rows = table.sum(axis=1)
    if table.shape[1] < 2 or not rows.all():
        return 0.0, 1.0, 0
    expected = np.outer(rows, table.sum(axis=0)) / table.sum()
    scarce = expected.min(axis=0) < _EXPECTED
    if scarce.sum() > 1 or (scarce.any() and table.shape[1] > 2):
        rest = table[:, scarce].sum(axis=1, keepdims=True)
        table = np.hstack([table[:, ~scarce], rest])
        expected = np.outer(rows, table.sum(axis=0)) / table.sum()
    freedom = table.shape[1] - 1
    if freedom < 1:
        return 0.0, 1.0, 0
    statistic = float(((table - expected) ** 2 / expected).sum())
    return statistic, float(special.chdtrc(freedom, statistic)), freedom


def benjamini_hochberg(p_values: Numbers) -> Floats:
    """Return p-values adjusted for multiple tests (false discovery rate)."""
    array = np.asarray(p_values, dtype=np.float64)
    if not array.size:
        return array
    order = np.argsort(array)
    ranked = array[order] * array.size / np.arange(1, array.size + 1)
    lowest = np.minimum.accumulate(ranked[::-1])[::-1]
    adjusted = np.empty_like(array)
    adjusted[order] = np.clip(lowest, 0.0, 1.0)
    return adjusted
