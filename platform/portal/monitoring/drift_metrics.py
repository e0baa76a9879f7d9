"""Distances between histograms, in plain Python: pages do without numpy."""

import math
from collections.abc import Sequence


def share_moved(base: Sequence[int], window: Sequence[int]) -> float:
    """Return the total variation distance of two histograms, from 0 to 1."""
    first, second = sum(base), sum(window)
    if not first or not second:
        return 0.0
    return sum(abs(a / first - b / second) for a, b in zip(base, window, strict=True)) / 2


def psi(base: Sequence[int], window: Sequence[int]) -> float:
    """Return the population stability index, with half a count added to each bin."""
    first = sum(base) + 0.5 * len(base)
    second = sum(window) + 0.5 * len(window)
    result = 0.0
    for a, b in zip(base, window, strict=True):
        p, q = (a + 0.5) / first, (b + 0.5) / second
        result += (q - p) * math.log(q / p)
    return result


def psi_p_value(base: Sequence[int], window: Sequence[int]) -> float:
    """Return the p-value of the PSI without drift (chi-square, by Wilson and Hilferty)."""
    first, second = sum(base), sum(window)
    there = [(a, b) for a, b in zip(base, window, strict=True) if a or b]
    freedom = len(there) - 1
    if freedom < 1 or not first or not second:
        return 1.0
    scaled = psi([a for a, _ in there], [b for _, b in there]) / (1 / first + 1 / second)
    spread = 2 / (9 * freedom)
    z = ((scaled / freedom) ** (1 / 3) - (1 - spread)) / math.sqrt(spread)
    return math.erfc(z / math.sqrt(2)) / 2


def adjusted(p_values: Sequence[float]) -> list[float]:
    """Return p-values after Benjamini-Hochberg."""
    order = sorted(range(len(p_values)), key=p_values.__getitem__, reverse=True)
    result, lowest = [1.0] * len(p_values), 1.0
    for rank, at in enumerate(order):
        lowest = min(lowest, p_values[at] * len(p_values) / (len(p_values) - rank))
        result[at] = lowest
    return result
