"""Charts that a run logs as JSON into the folder `charts`, checked and bounded for a page.

    chart = {"type": "confusion_matrix", "labels": ["cat", "dog"], "matrix": [[5, 1], [0, 6]]}
    mlflow.log_dict(chart, "charts/confusion.json")

The types: `confusion_matrix` (labels; matrix, a row for each true class), `roc_curve` and
`pr_curve` (curves: label, x, y), and `histogram` (edges, counts). A name that ends in `+step+N`
makes a chart one of a series, which a slider goes through; histograms of a series are a ridgeline.
"""

import json
import math
import re
from typing import Any

MOST_BYTES = 512 * 1024
MOST_CLASSES = 100
MOST_CURVES = 30
MOST_POINTS = 500
MOST_BUCKETS = 200
_LABEL_CHARACTERS = 80
TYPES = frozenset({"confusion_matrix", "roc_curve", "pr_curve", "histogram"})
_STEP = re.compile(r"(?P<name>.+?)\+step\+(?P<step>-?\d{1,15})")


class ChartRefused(Exception):
    """The file is no chart. The message is a sentence for people."""


def name_and_step(path: str) -> tuple[str, int | None]:
    """Return the name of a chart and its step, from a path such as charts/loss+step+3.json."""
    name = path.partition("/")[2].removesuffix(".json")
    match = _STEP.fullmatch(name)
    return (match["name"], int(match["step"])) if match else (name, None)


def parse_chart(content: bytes) -> dict[str, Any]:
    """Return a chart with bounded lists of finite numbers. Raises ChartRefused."""
    if len(content) > MOST_BYTES:
        raise ChartRefused(f"A chart has at most {MOST_BYTES // 1024} KiB.")
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        raise ChartRefused("This chart is not valid JSON.") from None
    kind = document.get("type") if isinstance(document, dict) else None
    if kind not in TYPES:
        raise ChartRefused(f"“type” of a chart is one of {', '.join(sorted(TYPES))}.")
    if kind == "confusion_matrix":
        return _matrix(document)
    if kind == "histogram":
        return _histogram(document)
    return _curves(document)


def _matrix(document: dict[str, Any]) -> dict[str, Any]:
    rows = document.get("matrix")
    if not isinstance(rows, list) or not 0 < len(rows) <= MOST_CLASSES:
        raise ChartRefused(f"“matrix” is a list of 1 to {MOST_CLASSES} rows.")
    matrix = [_numbers(row, "matrix", len(rows)) for row in rows]
    if any(len(row) != len(rows) for row in matrix):
        raise ChartRefused("Each row of “matrix” has a number for each class.")
    labels = document.get("labels", list(range(len(rows))))
    if not isinstance(labels, list) or len(labels) != len(rows):
        raise ChartRefused("“labels” has a name for each row of “matrix”.")
    return {"type": "confusion_matrix", "labels": [_label(it) for it in labels], "matrix": matrix}


def _curves(document: dict[str, Any]) -> dict[str, Any]:
    curves = document.get("curves")
    if not isinstance(curves, list) or not 0 < len(curves) <= MOST_CURVES:
        raise ChartRefused(f"“curves” is a list of 1 to {MOST_CURVES} curves.")
    drawn = []
    for curve in curves:
        if not isinstance(curve, dict):
            raise ChartRefused("A curve is an object with label, x and y.")
        x, y = (_numbers(curve.get(name), name, 100_000) for name in ("x", "y"))
        if len(x) != len(y):
            raise ChartRefused("“x” and “y” of a curve have as many numbers.")
        stride = max(1, math.ceil(len(x) / MOST_POINTS))
        points = [[a, b] for a, b in zip(x, y, strict=True)]
        thinned = points[::stride] + (points[-1:] if (len(points) - 1) % stride else [])
        drawn.append({"label": _label(curve.get("label", "")), "points": thinned})
    return {"type": document["type"], "curves": drawn}


def _histogram(document: dict[str, Any]) -> dict[str, Any]:
    edges = _numbers(document.get("edges"), "edges", MOST_BUCKETS + 1)
    counts = _numbers(document.get("counts"), "counts", MOST_BUCKETS)
    if len(edges) != len(counts) + 1:
        raise ChartRefused("“edges” has one number more than “counts”.")
    return {"type": "histogram", "edges": edges, "counts": counts}


def _numbers(values: Any, name: str, most: int) -> list[float]:
    if not isinstance(values, list) or len(values) > most:
        raise ChartRefused(f"“{name}” is a list of at most {most:,} numbers.")
    for value in values:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not abs(value) < 1e300:
            raise ChartRefused(f"“{name}” has a value that is not a finite number.")
    return [float(value) for value in values]


def _label(value: Any) -> str:
    return str(value)[:_LABEL_CHARACTERS]
