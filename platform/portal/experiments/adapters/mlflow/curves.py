"""Curves of metrics, thinned out so that no peak and no hole is lost."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from django.db import connections

from portal.experiments.adapters.mlflow.sql import LARGEST, marks, rows
from portal.experiments.models.tables import DATABASE
from portal.experiments.ports import Axis, Curve, Point, Span

_ROWS = 5_000
# Steps that an attempt logs again after its checkpoint.
_SPARE_ROWS = 32


@dataclass(frozen=True)
class _Extent:
    """Number of points and range of a curve. Times are in milliseconds."""

    points: int
    first: int
    last: int


@dataclass
class _Interval:
    """Retained points of an interval: the lowest, the highest, and one of each non-finite value.

    Points are (step, timestamp, value).
    """

    low: tuple[int, int, float] | None = None
    high: tuple[int, int, float] | None = None
    odd: dict[str, tuple[int, int, float]] = field(default_factory=dict)

    def add(self, step: int, timestamp: int, value: float) -> None:
        """Process one more point."""
        if not math.isfinite(value):
            self.odd.setdefault(str(value), (step, timestamp, value))
            return
        if self.low is None or value < self.low[2]:
            self.low = (step, timestamp, value)
        if self.high is None or value > self.high[2]:
            self.high = (step, timestamp, value)

    def retained_points(self) -> Iterator[tuple[int, int, float]]:
        """Return the retained points."""
        if self.low is not None:
            yield self.low
        if self.high is not None and self.high != self.low:
            yield self.high
        yield from self.odd.values()


@dataclass(frozen=True)
class _Axis:
    """The column that curves run along, and the part of it that is asked for."""

    column: Literal["step", "timestamp"]
    span: Span | None

    @property
    def condition(self) -> str:
        """The SQL that limits points to the span."""
        return f" AND {self.column} BETWEEN %s AND %s" if self.span else ""

    @property
    def parameters(self) -> list[int]:
        """The values of the condition."""
        return list(self.span or ())


def curves_of(
    run_ids: Sequence[str],
    keys: Sequence[str],
    *,
    most_points: int,
    axis: Axis,
    span: Span | None = None,
) -> list[Curve]:
    """Return the curves there are of these runs and keys, in their order.

    With a span (both ends included, in steps or in ms since 1970 by `axis`) only its points count.
    """
    if not run_ids or not keys:
        return []
    along = _Axis("step" if axis == "step" else "timestamp", span)
    extents = _extents(run_ids, keys, along)
    values: dict[tuple[str, str], list[Point]] = {}
    small = [pair for pair, extent in extents.items() if extent.points <= most_points]
    if small:
        values |= _complete_curves(
            sorted({run for run, _ in small}), sorted({key for _, key in small}), along
        )
    curves = []
    for run_id in run_ids:
        for key in keys:
            extent = extents.get((run_id, key))
            if extent is None:
                continue
            if extent.points <= most_points:
                points = values.get((run_id, key), [])
            else:
                points = _thinned(run_id, key, extent, most_points, along)
            curves.append(Curve(run_id, key, extent.points, points))
    return curves


def _extents(
    run_ids: Sequence[str], keys: Sequence[str], along: _Axis
) -> dict[tuple[str, str], _Extent]:
    column = along.column
    listed = rows(
        f"SELECT run_uuid, key, count(*), min({column}), max({column}) FROM metrics "
        f"WHERE run_uuid IN ({marks(run_ids)}) AND key IN ({marks(keys)}){along.condition} "
        "GROUP BY run_uuid, key",
        [*run_ids, *keys, *along.parameters],
    )
    return {(run, key): _Extent(count, low, high) for run, key, count, low, high in listed}


def _complete_curves(
    run_ids: Sequence[str], keys: Sequence[str], along: _Axis
) -> dict[tuple[str, str], list[Point]]:
    """Return all points of curves that are short enough for that."""
    whole: dict[tuple[str, str], list[Point]] = {}
    listed = rows(
        "SELECT run_uuid, key, step, timestamp, value, is_nan FROM metrics "
        f"WHERE run_uuid IN ({marks(run_ids)}) AND key IN ({marks(keys)}){along.condition} "
        "ORDER BY run_uuid, key, step, timestamp",
        [*run_ids, *keys, *along.parameters],
    )
    for run, key, step, timestamp, value, is_nan in listed:
        whole.setdefault((run, key), []).append(Point(step, timestamp, _number(value, is_nan)))
    return whole


def _thinned(run_id: str, key: str, extent: _Extent, most_points: int, along: _Axis) -> list[Point]:
    """Return the lowest and highest points of each stretch, reading in constant memory."""
    stretches = max(1, most_points // 2)
    width = max(1, extent.last - extent.first + 1)
    kept: dict[int, _Interval] = {}
    first = last = None
    at = 0 if along.column == "step" else 1
    with connections[DATABASE].cursor() as cursor:
        cursor.execute(
            "SELECT step, timestamp, value, is_nan FROM metrics "
            f"WHERE run_uuid = %s AND key = %s{along.condition} ORDER BY step, timestamp",
            [run_id, key, *along.parameters],
        )
        while listed := cursor.fetchmany(_ROWS):
            for row in listed:
                value = _number(row[2], row[3])
                place = (row[at] - extent.first) * stretches // width
                stretch = kept.get(place)
                if stretch is None:
                    stretch = kept[place] = _Interval()
                stretch.add(row[0], row[1], value)
                last = (row[0], row[1], value)
                first = first or last
    points = {point for stretch in kept.values() for point in stretch.retained_points()}
    ends = {point for point in (first, last) if point is not None}
    return [Point(*point) for point in sorted(points | ends, key=lambda point: point[:2])]


def first_values_of(run_id: str, key: str, *, count: int) -> list[float]:
    """Return the first values of a metric, one a step, or in time if all have the same step."""
    most = 2 * count + _SPARE_ROWS
    while True:
        listed = rows(
            "SELECT step, value, is_nan FROM metrics WHERE run_uuid = %s AND key = %s "
            f"ORDER BY step, timestamp LIMIT {most}",
            [run_id, key],
        )
        values = [_number(value, is_nan) for _, value, is_nan in listed]
        by_step = dict(zip((row[0] for row in listed), values, strict=True))
        if len(by_step) > 1:
            values = [*by_step.values()]
        if len(values) >= count or len(listed) < most:
            return values[:count]
        most *= 2


def _number(value: float, is_nan: object) -> float:
    if is_nan:
        return math.nan
    if -LARGEST < value < LARGEST:
        return value
    return math.inf if value > 0 else -math.inf
