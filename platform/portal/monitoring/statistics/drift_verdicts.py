"""Drift verdict of a window: significance, effect size, and enough data.

A threshold on a distance alone misleads: with few rows it fires by chance, with many a tiny
difference is significant. So a feature is different if all three criteria are met, and drifted if
it was different in two windows in a row.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from portal.monitoring.statistics import distances
from portal.monitoring.statistics.baselines import (
    CATEGORY,
    Baseline,
    Counts,
    Floats,
    bin_values,
    numbers_of,
)

ENOUGH: Final = 200


@dataclass(frozen=True)
class DriftThresholds:
    """Thresholds of a difference: `alpha` after Benjamini-Hochberg, and any one effect size.

    `share`: total variation, or the Kolmogorov-Smirnov statistic of numbers. `shift_sd`:
    Wasserstein distance in standard deviations of the baseline. `missing`: change of the share of
    missing values.
    """

    alpha: float = 0.01
    share: float = 0.1
    shift_sd: float = 0.2
    missing: float = 0.05
    enough: int = ENOUGH


@dataclass(frozen=True)
class Difference:
    """One feature of a window and its baseline. `counts` are those of the baseline's bins."""

    name: str
    kind: str
    rows: int
    counts: list[int]
    missing_share: float
    mean: float | None
    psi: float
    psi_p: float
    jensen_shannon: float
    ks: float | None
    wasserstein_sd: float | None
    chi_square: float
    share: float
    p: float
    p_adjusted: float
    verdict: str

    def as_json(self) -> dict[str, Any]:
        """Return the difference as a JSON object."""
        return asdict(self)


NOT_ENOUGH: Final = "not_enough_data"
STEADY: Final = "steady"
DIFFERENT: Final = "different"


def compare(
    baselines: Sequence[Baseline],
    columns: Mapping[str, Sequence[Any] | Floats],
    limits: DriftThresholds | None = None,
) -> list[Difference]:
    """Compare the columns of a window with their baselines. Columns without one are left out."""
    used = limits or DriftThresholds()
    measurements = [
        _measure(baseline, columns[baseline.name])
        for baseline in baselines
        if baseline.name in columns
    ]
    adjusted = distances.benjamini_hochberg([baseline.p for baseline in measurements])
    sizes = {baseline.name: baseline.rows for baseline in baselines}
    return [
        _with_verdict(baseline, float(p), used, base_rows=sizes[baseline.name])
        for baseline, p in zip(measurements, adjusted, strict=True)
    ]


@dataclass(frozen=True)
class _Measured:
    difference: Difference
    missing_change: float

    @property
    def p(self) -> float:
        return self.difference.p

    @property
    def name(self) -> str:
        return self.difference.name


def _measure(base: Baseline, values: Sequence[Any] | Floats) -> _Measured:
    counts = bin_values(base, values)
    first = np.asarray(base.counts)
    missing = int(counts[-1] if base.kind == CATEGORY else counts[-2])
    rows = int(counts.sum())
    share_missing = missing / rows if rows else 0.0
    statistic, p, _ = distances.chi_square(first, counts)
    share = distances.total_variation(first, counts)
    mean = ks = moved = None
    if base.kind != CATEGORY:
        numbers = numbers_of(values)
        finite = np.sort(numbers[np.isfinite(numbers)])
        mean = float(finite.mean()) if finite.size else None
        sample = np.asarray(base.sample, dtype=np.float64)
        ks, ks_p = distances.kolmogorov_smirnov(sample, finite)
        moved = _in_sd(distances.wasserstein(sample, finite), base)
        beside, beside_p, _ = distances.chi_square(_tails(first), _tails(counts))
        # Two tests, of finite numbers and of other values: Bonferroni doubles the p-value.
        p = min(1.0, 2 * min(ks_p, beside_p))
        statistic = max(statistic, beside)
        share = max(ks, distances.total_variation(_tails(first), _tails(counts)))
    difference = Difference(
        name=base.name,
        kind=base.kind,
        rows=rows,
        counts=counts.tolist(),
        missing_share=share_missing,
        mean=mean,
        psi=distances.psi(first, counts),
        psi_p=distances.psi_p_value(first, counts),
        jensen_shannon=distances.jensen_shannon(first, counts),
        ks=ks,
        wasserstein_sd=moved,
        chi_square=statistic,
        share=share,
        p=p,
        p_adjusted=p,
        verdict=NOT_ENOUGH,
    )
    return _Measured(difference, abs(share_missing - base.missing_share))


def _in_sd(moved: float, base: Baseline) -> float:
    if base.sd > 0:
        return moved / base.sd
    return 0.0 if moved == 0 else 10.0  # the value was constant and now varies


def _tails(counts: Counts) -> Counts:
    """Return the numbers of finite, missing and infinite values."""
    return np.array([counts[:-2].sum(), counts[-2], counts[-1]])


def _with_verdict(
    measured: _Measured, p: float, limits: DriftThresholds, *, base_rows: int
) -> Difference:
    difference = measured.difference
    verdict = STEADY
    if difference.rows < limits.enough or base_rows < limits.enough:
        verdict = NOT_ENOUGH
    elif p < limits.alpha and (
        difference.share >= limits.share
        or (difference.wasserstein_sd or 0.0) >= limits.shift_sd
        or measured.missing_change >= limits.missing
    ):
        verdict = DIFFERENT
    return Difference(**{**asdict(difference), "p_adjusted": p, "verdict": verdict})


def drifted(before: Collection[str], now: Iterable[Difference]) -> list[str]:
    """Return the features that are different now and were in the window before."""
    return [
        difference.name
        for difference in now
        if difference.verdict == DIFFERENT and difference.name in before
    ]
