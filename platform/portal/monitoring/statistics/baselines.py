"""Baseline of one feature: bins with fixed edges, moments, and a sample of values.

Numbers have bins between quantiles, then one for missing and one for infinite values. Categories
have one bin for each of the most frequent, then bins for rarer known ones, unseen ones, and missing
ones. So a window always uses the same bins, and every value falls into one.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from portal.monitoring.statistics.tasks import name_of

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
NUMBER: Final = "number"
CATEGORY: Final = "category"
QUANTILES: Final = 10
RESERVOIR: Final = 5_000
MOST_CATEGORIES: Final = 50
_MOST_NAMES: Final = 1_000
_LARGEST: Final = 1e100
# Whole numbers with at most this many values, such as classes, are categories.
_MOST_CLASSES: Final = 20


@dataclass(frozen=True)
class Baseline:
    """Distribution of a feature: `counts` of its bins, `sample` of finite numbers, sorted."""

    name: str
    kind: str
    rows: int
    counts: list[int]
    edges: list[float] = field(default_factory=list)
    categories: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    mean: float = 0.0
    sd: float = 0.0
    low: float = 0.0
    high: float = 0.0
    missing: int = 0
    sample: list[float] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Return the baseline as a JSON object."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Baseline":
        """Parse the result of `as_json`."""
        return cls(**values)

    @property
    def missing_share(self) -> float:
        """Share of values that were missing."""
        return self.missing / self.rows if self.rows else 0.0


def numbers_of(values: Sequence[Any] | Floats) -> Floats:
    """Return values as numbers. Others are missing (NaN).

    Numbers beyond ±1e100, whose sums might not be finite, count as infinite.
    """
    try:
        array = np.array(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        array = np.array([_number(value) for value in values], dtype=np.float64)
    array[array > _LARGEST] = np.inf
    array[array < -_LARGEST] = -np.inf
    return array


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def texts_of(values: Sequence[Any] | Floats) -> list[str | None]:
    """Return values as names of categories, None for missing ones."""
    return [_text(value) for value in values]


def _text(value: Any) -> str | None:
    if isinstance(value, np.bool_):
        value = bool(value)
    return name_of(float(value) if isinstance(value, np.floating) else value)


def is_class(values: Floats) -> bool:
    """Return whether numbers are categories: integers with few distinct values."""
    finite = values[np.isfinite(values)]
    if not finite.size or np.any(finite != np.floor(finite)):
        return False
    return len(np.unique(finite)) <= _MOST_CLASSES


def baseline_of(name: str, values: Sequence[Any] | Floats, *, kind: str, seed: int = 0) -> Baseline:
    """Return the baseline of the values of one feature."""
    if kind == CATEGORY:
        return _of_categories(name, texts_of(values))
    return _numeric_baseline(name, numbers_of(values), seed)


def _numeric_baseline(name: str, values: Floats, seed: int) -> Baseline:
    finite = np.sort(values[np.isfinite(values)])
    edges: list[float] = []
    if finite.size:
        cuts = np.quantile(finite, np.linspace(0, 1, QUANTILES + 1)[1:-1], method="lower")
        # The highest value cannot be an edge: the bin above it would be empty.
        edges = [float(cut) for cut in np.unique(cuts) if cut < finite[-1]]
    sample = finite
    if finite.size > RESERVOIR:
        chosen = np.random.default_rng(seed).choice(finite.size, RESERVOIR, replace=False)
        sample = finite[np.sort(chosen)]
    return Baseline(
        name=name,
        kind=NUMBER,
        rows=len(values),
        counts=bin_numbers(values, edges).tolist(),
        edges=edges,
        mean=float(finite.mean()) if finite.size else 0.0,
        sd=float(finite.std()) if finite.size else 0.0,
        low=float(finite[0]) if finite.size else 0.0,
        high=float(finite[-1]) if finite.size else 0.0,
        missing=int(np.isnan(values).sum()),
        sample=sample.tolist(),
    )


def _of_categories(name: str, values: list[str | None]) -> Baseline:
    seen = Counter(value for value in values if value is not None)
    names = [item for item, _ in seen.most_common(_MOST_NAMES)]
    categories, others = names[:MOST_CATEGORIES], names[MOST_CATEGORIES:]
    return Baseline(
        name=name,
        kind=CATEGORY,
        rows=len(values),
        counts=bin_categories(values, categories, others).tolist(),
        categories=categories,
        others=others,
        missing=sum(value is None for value in values),
    )


def bin_numbers(values: Floats, edges: Sequence[float]) -> Counts:
    """Count numbers in the bins between the edges, then missing and infinite ones."""
    finite = values[np.isfinite(values)]
    places = np.searchsorted(np.asarray(edges, dtype=np.float64), finite, side="left")
    counts = np.bincount(places, minlength=len(edges) + 1)
    return np.append(counts, [np.isnan(values).sum(), np.isinf(values).sum()]).astype(np.int64)


def bin_categories(
    values: Sequence[str | None], categories: Sequence[str], others: Sequence[str]
) -> Counts:
    """Count names: each category, then others that were seen, unseen ones, and missing ones."""
    place = {name: at for at, name in enumerate(categories)}
    rare = len(categories)
    place |= dict.fromkeys(others, rare)
    counts = np.zeros(rare + 3, dtype=np.int64)
    for value, times in Counter(values).items():
        counts[rare + 2 if value is None else place.get(value, rare + 1)] += times
    return counts


def bin_values(baseline: Baseline, values: Sequence[Any] | Floats) -> Counts:
    """Count the values of a window in the bins of its baseline."""
    if baseline.kind == CATEGORY:
        return bin_categories(texts_of(values), baseline.categories, baseline.others)
    return bin_numbers(numbers_of(values), baseline.edges)
