"""Statistics of one column, gathered from batches in bounded memory."""

import hashlib
import math
from collections import Counter
from dataclasses import dataclass
from datetime import date, datetime
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
_LEAST_COUNTED = 400
_MOST_COUNTED_OF_ALL = 4_000_000
_SHOWN = 100
_SKETCH = 1024
_HASH_SPACE = 2**64
_COUNTED = (ColumnKind.INTEGER, ColumnKind.BOOLEAN, ColumnKind.TEXT)
_MOST_KEPT_NUMBERS = 16_000_000
_MOST_KEPT_OF_A_COLUMN = 50_000
# The beginning of a value, and the digest of a longer one.
_Key = tuple[str, str]


@dataclass(frozen=True)
class ProfileLimits:
    """Bounds of the numbers that a column keeps for quantiles, and of the values it counts."""

    numbers: int
    values: int


def profile_limits(columns: int) -> ProfileLimits:
    """Return the profile limits of each of so many columns."""
    columns = max(1, columns)
    return ProfileLimits(
        numbers=min(_MOST_KEPT_OF_A_COLUMN, _MOST_KEPT_NUMBERS // columns),
        values=max(_LEAST_COUNTED, min(_MOST_COUNTED, _MOST_COUNTED_OF_ALL // columns)),
    )


def kind_of(kind: Any) -> ColumnKind:
    """Return what values of an Arrow type are to a person."""
    types = pa.types
    if types.is_dictionary(kind):
        return kind_of(kind.value_type)
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

    def __init__(self, most: int) -> None:
        self.counts: Counter[_Key] = Counter()
        self.is_exact = True
        self._most = most
        self._smallest: list[int] = []

    def add(self, values: Any) -> None:
        counted = pc.value_counts(values)
        pairs = zip(counted.field(0).to_pylist(), counted.field(1).to_pylist(), strict=True)
        for value, count in pairs:
            if value is not None:
                self.counts[_key(value)] += count
        if len(self.counts) > self._most:
            self.is_exact = False
            self._note()
            self.counts = Counter(dict(self.counts.most_common(self._most // 2)))

    def _note(self) -> None:
        """Keep the smallest hashes: how close they lie together tells how many there are."""
        hashes = {_hash(key) for key in self.counts}
        self._smallest = sorted(hashes.union(self._smallest))[:_SKETCH]

    def number(self, count: int) -> int:
        """Return the number of distinct ones among `count` values, which it never exceeds."""
        if self.is_exact:
            return len(self.counts)
        self._note()
        if len(self._smallest) < _SKETCH:
            return len(self._smallest)
        estimate = round((_SKETCH - 1) * _HASH_SPACE / self._smallest[-1])
        return min(max(estimate, len(self.counts)), count)


class ColumnProfile:
    """Profile of one column, whose memory is bounded by its `room`."""

    def __init__(self, name: str, kind: Any, *, room: ProfileLimits) -> None:
        self.name = name
        self.type = kind
        self._sample_limit = room.numbers
        self.count = self.missing = 0
        self._distinct = _Distinct(room.values)
        self._finite = self._infinite = 0
        self._mean = self._squares = 0.0
        self._min, self._max = math.inf, -math.inf
        self._sampled: list[Any] = []
        self._sampled_count = 0
        self._stride = 1
        self._seen = 0
        self._exact: tuple[Any, Any] | None = None
        self._ends: tuple[datetime | date, datetime | date] | None = None

    def add(self, values: Any) -> None:
        """Add the next values, an Arrow array of the column's type."""
        self.missing += values.null_count
        self.count += len(values) - values.null_count
        kind = kind_of(self.type)
        if pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        if kind in _COUNTED:
            self._distinct.add(values)
        if kind in (ColumnKind.INTEGER, ColumnKind.NUMBER):
            if not pa.types.is_floating(values.type):
                self._add_exact(values)
            self._add_numbers(pc.drop_null(pc.cast(values, pa.float64(), safe=False)))
        elif kind is ColumnKind.TIME:
            self._add_times(values)

    def _add_exact(self, values: Any) -> None:
        ends = pc.min_max(values)
        low, high = ends["min"].as_py(), ends["max"].as_py()
        if low is not None:
            before = self._exact or (low, high)
            self._exact = min(before[0], low), max(before[1], high)

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
        # Chan's algorithm for merging means and sums of squares, accurate over many batches.
        away, both = mean - self._mean, self._finite + count
        self._squares += variance * count + away * away * self._finite * count / both
        self._mean += away * count / both
        self._finite = both
        self._sample(finite)

    def _sample(self, numbers: Any) -> None:
        """Sample every n-th number. The stride doubles each time the buffer is full."""
        first = -self._seen % self._stride
        self._seen += len(numbers)
        some = numbers.take(pa.array(range(first, len(numbers), self._stride), pa.int64()))
        self._sampled.append(some)
        self._sampled_count += len(some)
        while self._sampled_count > self._sample_limit:
            whole = pa.concat_arrays(self._sampled)
            self._sampled = [whole.take(pa.array(range(0, len(whole), 2), pa.int64()))]
            self._sampled_count = len(self._sampled[0])
            self._stride *= 2

    def _add_times(self, values: Any) -> None:
        if pa.types.is_timestamp(values.type):
            values = pc.cast(values, pa.timestamp("us", values.type.tz), safe=False)
            values = pc.cast(values, pa.timestamp("us"))
        ends = pc.min_max(values)
        try:
            low, high = ends["min"].as_py(), ends["max"].as_py()
        except (ValueError, OverflowError):
            return  # outside the range of Python's datetime
        if low is not None:
            before = self._ends or (low, high)
            self._ends = min(before[0], low), max(before[1], high)

    def _time_text(self, at: int) -> str | None:
        if self._ends is None:
            return None
        has_zone = pa.types.is_timestamp(self.type) and self.type.tz is not None
        return self._ends[at].isoformat() + ("+00:00" if has_zone else "")

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
            distinct=self._distinct.number(self.count) if counted else None,
            distinct_is_exact=self._distinct.is_exact,
            number=self._numbers(),
            top=[TopValue(value=key[0].replace("\0", "\ufffd"), count=count) for key, count in top],
            earliest=self._time_text(0),
            latest=self._time_text(1),
        )

    def _numbers(self) -> NumberStatistics | None:
        if not self._finite:
            return None
        kept = pa.concat_arrays(self._sampled)
        quantiles = pc.quantile(kept, q=list(QUANTILES)).to_pylist()
        return NumberStatistics(
            min=self._min,
            max=self._max,
            exact_min=str(self._exact[0]) if self._exact else None,
            exact_max=str(self._exact[1]) if self._exact else None,
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
    """Guard against overflow of a sum of huge numbers, because JSON has no infinity."""
    return max(-1.7e308, min(1.7e308, value)) if not math.isnan(value) else 0.0


def _key(value: object) -> _Key:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if len(text) <= _SHOWN:
        return text, ""
    return text[:_SHOWN], hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _hash(key: _Key) -> int:
    return int.from_bytes(hashlib.blake2b("\0".join(key).encode(), digest_size=8).digest())
