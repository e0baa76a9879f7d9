"""Statistics of one column, gathered from batches in bounded memory."""

import hashlib
import math
from collections import Counter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from slipway.schemas.statistics import (
    HISTOGRAM_BINS,
    QUANTILES,
    TOP_VALUES,
    Bin,
    ColumnKind,
    ColumnStatistics,
    NumberStatistics,
    QuantileOf,
    TopValue,
)

_MOST_COUNTED = 10_000
_SHOWN = 100
_SKETCH = 1024
_HASH_SPACE = 2**64
_COUNTED = (ColumnKind.INTEGER, ColumnKind.BOOLEAN, ColumnKind.TEXT)


def kind_of(kind: Any) -> ColumnKind:
    """Return what values of an Arrow type are to a person."""
    types = pa.types
    if types.is_boolean(kind):
        return ColumnKind.BOOLEAN
    if types.is_integer(kind):
        return ColumnKind.INTEGER
    if types.is_floating(kind) or types.is_decimal(kind):
        return ColumnKind.NUMBER
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return ColumnKind.TEXT
    if types.is_timestamp(kind) or types.is_date(kind):
        return ColumnKind.TIME
    return ColumnKind.OTHER


class _Distinct:
    """Counts values: exactly while they are few, then the frequent ones and an estimate."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.is_exact = True
        self._smallest: list[int] = []

    def add(self, values: Any) -> None:
        for pair in pc.value_counts(values):
            value = pair["values"].as_py()
            if value is not None:
                self.counts[_text(value)] += pair["counts"].as_py()
        if len(self.counts) > _MOST_COUNTED:
            self.is_exact = False
            self._note()
            self.counts = Counter(dict(self.counts.most_common(_MOST_COUNTED // 2)))

    def _note(self) -> None:
        """Keep the smallest hashes: how close they lie together tells how many there are."""
        hashes = {_hash(value) for value in self.counts}
        self._smallest = sorted(hashes.union(self._smallest))[:_SKETCH]

    def number(self) -> int:
        """How many distinct values there were."""
        if self.is_exact:
            return len(self.counts)
        self._note()
        if len(self._smallest) < _SKETCH:
            return len(self._smallest)
        return round((_SKETCH - 1) * _HASH_SPACE / self._smallest[-1])


class Column:
    """One column. `room` is how many numbers it may keep for its quantiles."""

    def __init__(self, name: str, kind: Any, *, room: int) -> None:
        self.name = name
        self.type = kind
        self._room = room
        self.count = self.missing = 0
        self._distinct = _Distinct()
        self._finite = self._infinite = 0
        self._mean = self._squares = 0.0
        self._min, self._max = math.inf, -math.inf
        self._kept: list[Any] = []
        self._kept_count = 0
        self._stride = 1
        self._seen = 0
        self._earliest: str | None = None
        self._latest: str | None = None

    def add(self, values: Any) -> None:
        """Take in the next values, an Arrow array of the column's type."""
        self.missing += values.null_count
        self.count += len(values) - values.null_count
        kind = kind_of(self.type)
        if kind in _COUNTED:
            shortened = kind is ColumnKind.TEXT
            self._distinct.add(pc.utf8_slice_codeunits(values, 0, _SHOWN) if shortened else values)
        if kind in (ColumnKind.INTEGER, ColumnKind.NUMBER):
            self._add_numbers(pc.drop_null(pc.cast(values, pa.float64(), safe=False)))
        elif kind is ColumnKind.TIME:
            self._add_times(values)

    def _add_numbers(self, numbers: Any) -> None:
        finite = numbers.filter(pc.is_finite(numbers))
        self._infinite += len(numbers) - len(finite)
        count = len(finite)
        if not count:
            return
        ends = pc.min_max(finite)
        self._min = min(self._min, ends["min"].as_py())
        self._max = max(self._max, ends["max"].as_py())
        mean, variance = pc.mean(finite).as_py(), pc.variance(finite).as_py()
        # Chan's way of merging means and sums of squares, which stays exact over many batches.
        away, both = mean - self._mean, self._finite + count
        self._squares += variance * count + away * away * self._finite * count / both
        self._mean += away * count / both
        self._finite = both
        self._keep(finite)

    def _keep(self, numbers: Any) -> None:
        """Keep every so many-th number; twice as sparse each time the room is full."""
        first = -self._seen % self._stride
        self._seen += len(numbers)
        some = numbers.take(pa.array(range(first, len(numbers), self._stride), pa.int64()))
        self._kept.append(some)
        self._kept_count += len(some)
        while self._kept_count > self._room:
            whole = pa.concat_arrays(self._kept)
            self._kept = [whole.take(pa.array(range(0, len(whole), 2), pa.int64()))]
            self._kept_count = len(self._kept[0])
            self._stride *= 2

    def _add_times(self, values: Any) -> None:
        ends = pc.min_max(values)
        low, high = ends["min"].as_py(), ends["max"].as_py()
        if low is not None:
            self._earliest = min(filter(None, (self._earliest, low.isoformat())))
            self._latest = max(filter(None, (self._latest, high.isoformat())))

    def statistics(self) -> ColumnStatistics:
        """Return what was gathered."""
        kind = kind_of(self.type)
        counted = kind in _COUNTED
        top = self._distinct.counts.most_common(TOP_VALUES) if counted else []
        return ColumnStatistics(
            name=self.name,
            type=str(self.type),
            kind=kind,
            count=self.count,
            missing=self.missing,
            distinct=self._distinct.number() if counted else None,
            distinct_is_exact=self._distinct.is_exact,
            number=self._numbers(),
            top=[TopValue(value=value, count=count) for value, count in top],
            earliest=self._earliest,
            latest=self._latest,
        )

    def _numbers(self) -> NumberStatistics | None:
        if not self._finite:
            return None
        kept = pa.concat_arrays(self._kept)
        quantiles = pc.quantile(kept, q=list(QUANTILES)).to_pylist()
        return NumberStatistics(
            min=self._min,
            max=self._max,
            mean=_finite(self._mean),
            std=_finite(math.sqrt(max(0.0, self._squares) / self._finite)),
            infinite=self._infinite,
            sampled=len(kept),
            quantiles=[
                QuantileOf(share=share, value=_finite(value))
                for share, value in zip(QUANTILES, quantiles, strict=True)
            ],
            histogram=self._histogram(kept),
        )

    def _histogram(self, kept: Any) -> list[Bin]:
        width = (self._max - self._min) / HISTOGRAM_BINS
        if not 0 < width < math.inf:
            return [Bin(low=self._min, high=self._max, count=len(kept))]
        places = pc.floor(pc.divide(pc.subtract(kept, self._min), width))
        counts = {
            pair["values"].as_py(): pair["counts"].as_py() for pair in pc.value_counts(places)
        }
        bins = [int(counts.get(float(place), 0)) for place in range(HISTOGRAM_BINS)]
        bins[-1] += sum(count for place, count in counts.items() if place >= HISTOGRAM_BINS)
        return [
            Bin(low=self._min + width * at, high=self._min + width * (at + 1), count=count)
            for at, count in enumerate(bins)
        ]


def _finite(value: float) -> float:
    """A sum of huge numbers may overflow; JSON knows no infinity."""
    return max(-1.7e308, min(1.7e308, value)) if not math.isnan(value) else 0.0


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)[:_SHOWN]


def _hash(value: str) -> int:
    return int.from_bytes(hashlib.blake2b(value.encode(), digest_size=8).digest())
