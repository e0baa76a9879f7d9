"""The arithmetic of the fair share: use that fades, in a form that sorts. No Django, no I/O.

Use is counted in CPU-seconds (see `Amount.fair_millis`) and halves every HALF_LIFE_S. A stored
score is `log2(use) + age of the world in half-lives`: it does not change while nobody uses
anything, so rows written at different times compare without being touched.
"""

import math

HALF_LIFE_S = 86_400.0
_LANDMARK_S = 1_767_225_600.0  # the first second of 2026
# Running workloads count as used for this long already, so that the next pass considers them.
_NOW_COUNTS_AS_S = 600.0


def _age(at_s: float) -> float:
    return (at_s - _LANDMARK_S) / HALF_LIFE_S


def used_at(score: float, at_s: float) -> float:
    """Return the faded use in CPU-seconds behind a stored score."""
    exponent = score - _age(at_s)
    return 2.0 ** min(exponent, 1000.0) if exponent > -60 else 0.0


def charge(score: float, *, cpu_seconds: float, at_s: float) -> float:
    """Return the score after `cpu_seconds` more of use."""
    use = used_at(score, at_s) + max(0.0, cpu_seconds)
    return math.log2(use) + _age(at_s) if use > 0 else score


def order_key(score: float, *, fair_millis: int, weight: float, at_s: float) -> float:
    """Return what the fair share sorts by: who has used least for its weight goes first."""
    return (used_at(score, at_s) + fair_millis / 1000 * _NOW_COUNTS_AS_S) / weight
