"""Geometry of line charts, and their SVG. Pages have the same curves with ECharts on top."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

WIDTH, HEIGHT = 720, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 14, 10, 26
_TICKS = 5
COLOURS = 8
DASHES = ("", "7 4", "2 3", "9 3 2 3")
_DAY_S = 86_400


@dataclass(frozen=True)
class ChartLine:
    """A line: its place in the legend, from 0, and its points (x, y) in the order of x."""

    at: int
    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class ChartLabel:
    """A text of a drawing at its anchor: `start`, `middle` or `end`."""

    x: float
    y: float
    text: str
    anchor: str


@dataclass(frozen=True)
class Drawing:
    """A chart of WIDTH x HEIGHT units, y downwards. `omitted` counts points it cannot show."""

    grid: Sequence[tuple[float, float, float, float]]
    labels: Sequence[ChartLabel]
    lines: Sequence[tuple[int, Sequence[tuple[float, float]]]]
    omitted: int = 0

    @property
    def is_empty(self) -> bool:
        """True if there is no point to draw."""
        return not any(points for _, points in self.lines)


def draw(series: Sequence[ChartLine], *, is_time: bool = False, log_scale: bool = False) -> Drawing:
    """Return a chart of some lines. Times are milliseconds since 1970.

    Values that are not finite, and those of 0 or less on a log scale, are left out.
    """
    shown: list[tuple[int, list[tuple[float, float]]]] = []
    omitted = 0
    for line in series:
        points = [
            (x, math.log10(y) if log_scale else y)
            for x, y in line.points
            if math.isfinite(y) and not (log_scale and y <= 0)
        ]
        omitted += len(line.points) - len(points)
        shown.append((line.at, points))
    every = [point for _, points in shown for point in points]
    if not every:
        return Drawing((), (), shown, omitted)
    left, right = _extent([x for x, _ in every])
    low, high = _extent([y for _, y in every])
    y_ticks = _ticks(low, high)
    low, high = min(low, *y_ticks), max(high, *y_ticks)
    wide, tall = WIDTH - _LEFT - _RIGHT, HEIGHT - _TOP - _BOTTOM

    def place(x: float, y: float) -> tuple[float, float]:
        across = _LEFT + (x - left) / (right - left) * wide
        return round(across, 1), round(_TOP + (high - y) / (high - low) * tall, 1)

    grid, labels = [], []
    for tick in y_ticks:
        _, y = place(left, tick)
        grid.append((float(_LEFT), y, float(WIDTH - _RIGHT), y))
        labels.append(ChartLabel(_LEFT - 6, y + 4, _number(10**tick if log_scale else tick), "end"))
    x_ticks = _time_ticks(left, right) if is_time else _ticks(left, right)
    for tick in x_ticks:
        if left <= tick <= right:
            x, _ = place(tick, low)
            text = _time_text(tick, right - left) if is_time else _number(tick)
            labels.append(ChartLabel(x, HEIGHT - 8, text, "middle"))
    lines = [(at, [place(x, y) for x, y in points]) for at, points in shown]
    return Drawing(grid, labels, lines, omitted)


def svg_of(drawing: Drawing, title: str) -> SafeString:
    """Return a drawing as SVG without scripts, styles and ids. CSS classes colour it."""
    grid = format_html_join(
        "", '<line class="grid" x1="{}" y1="{}" x2="{}" y2="{}"/>', drawing.grid
    )
    labels = format_html_join(
        "",
        '<text x="{}" y="{}" text-anchor="{}">{}</text>',
        ((label.x, label.y, label.anchor, label.text) for label in drawing.labels),
    )
    lines = format_html_join("", "{}", ((_line(at, points),) for at, points in drawing.lines))
    return format_html(
        '<svg class="report-svg" viewBox="0 0 {} {}" role="img" aria-label="{}">{}{}{}</svg>',
        WIDTH,
        HEIGHT,
        title,
        grid,
        labels,
        lines,
    )


def swatch_of(at: int) -> SafeString:
    """Return the start of a line for a legend."""
    return format_html(
        '<svg class="report-swatch" viewBox="0 0 24 8" aria-hidden="true">{}</svg>',
        _line(at, [(0, 4), (24, 4)]),
    )


def smoothed(points: Sequence[tuple[float, float]], weight: float) -> Sequence[tuple[float, float]]:
    """Return an exponential moving average without a bias towards the first point."""
    if not weight:
        return points
    mean, mass, result = 0.0, 0.0, []
    for x, y in points:
        if math.isfinite(y):
            mean, mass = mean * weight + (1 - weight) * y, mass * weight + (1 - weight)
            result.append((x, mean / mass))
    return result


def _line(at: int, points: Sequence[tuple[float, float]]) -> SafeString:
    style, dash = f"s{at % COLOURS}", DASHES[at // COLOURS % len(DASHES)]
    if len(points) == 1:
        return format_html('<circle class="{}" cx="{}" cy="{}" r="3"/>', style, *points[0])
    joined = " ".join(f"{x:g},{y:g}" for x, y in points)
    return format_html(
        '<polyline class="{}" points="{}"{}/>',
        style,
        joined,
        format_html(' stroke-dasharray="{}"', dash) if dash else "",
    )


def _extent(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    if low < high:
        return low, high
    margin = abs(low) / 10 or 1.0
    return low - margin, high + margin


def _ticks(low: float, high: float) -> list[float]:
    """Return round numbers from `low` to `high`: multiples of 1, 2 or 5 times a power of ten."""
    raw = (high - low) / _TICKS
    if not raw > 0 or not math.isfinite(raw):
        return [low]
    power = 10 ** math.floor(math.log10(raw))
    step = next((power * factor for factor in (1, 2, 5) if power * factor >= raw), power * 10)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [number * step for number in range(first, min(last, first + 4 * _TICKS) + 1)]


def _time_ticks(low: float, high: float) -> list[float]:
    return [low + (high - low) * part / 4 for part in (0.1, 1.3, 2.5, 3.7)]


def _time_text(milliseconds: float, span_ms: float) -> str:
    try:
        timestamp = datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return ""
    return timestamp.strftime("%d %b %H:%M" if span_ms > _DAY_S * 500 else "%H:%M:%S")


def _number(value: float) -> str:
    return f"{round(value, 12):.4g}"
