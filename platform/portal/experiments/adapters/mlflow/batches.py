"""Parsers of the JSON that clients log, independent of MLflow.

Only plainly valid requests are parsed. MLflow's own server handles all others, and reports in
its own words what is wrong with it.
"""

import math
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

LARGEST = 1.7976931348623157e308
MOST_METRICS = 1_000
MOST_PARAMS = MOST_TAGS = 100
_LARGEST_BATCH_BYTES = 1_000_000
_MOST_KEY = 250
MOST_PARAM = 6_000
_MOST_TAG = 8_000
_INT64 = 1 << 63
RUN_ID = re.compile(r"\A[0-9a-f]{32}\Z")
_KEY = re.compile(r"\A[/\w.\- :]+\Z")
_NOT_FINITE = {
    "NaN": (0.0, True),
    "Infinity": (LARGEST, False),
    "-Infinity": (-LARGEST, False),
}
RUN_NAME = "mlflow.runName"
# The parameters that the platform has logged for a job, as a JSON list of their names. A script may
# log other values for these: it formats numbers in its own way.
GIVEN_PARAMS = "slipway.params"
# key, value, timestamp, step, is_nan
Point = tuple[str, float, int, int, bool]


class UnsupportedRequest(Exception):
    """Something MLflow itself should judge."""


@dataclass(frozen=True)
class Batch:
    """Metrics, parameters and tags written to one run in one transaction."""

    run_id: str
    metrics: tuple[Point, ...] = ()
    params: Mapping[str, str] | None = None
    tags: Mapping[str, str] | None = None

    def latest(self) -> list[Point]:
        """Return the last point of each key, sorted: all writers lock rows in one order."""
        best: dict[str, Point] = {}
        for point in self.metrics:
            other = best.get(point[0])
            if other is None or (point[3], point[2], point[1]) > (other[3], other[2], other[1]):
                best[point[0]] = point
        return [best[key] for key in sorted(best)]


def _require_only_keys(content: Mapping[str, Any], *names: str) -> None:
    if not content.keys() <= set(names):
        raise UnsupportedRequest


def run_id_of(content: Mapping[str, Any]) -> str:
    """Return the run a body or query is about. Raises Unusual."""
    result = content.get("run_id") or content.get("run_uuid")
    if not isinstance(result, str) or RUN_ID.match(result) is None:
        raise UnsupportedRequest
    return result


def key_of(given: object) -> str:
    """Return the key of a metric, parameter or tag. Raises Unusual."""
    if (
        not isinstance(given, str)
        or len(given) > _MOST_KEY
        or _KEY.match(given) is None
        or posixpath.normpath(given) != given
        or given.startswith(("/", ".."))
        or given == "."
    ):
        raise UnsupportedRequest
    return given


def _text(given: object, most: int) -> str:
    if not isinstance(given, str) or len(given) > most:
        raise UnsupportedRequest
    return given


def int64_of(given: object) -> int:
    """Return a whole number of 64 bits. Raises Unusual."""
    if type(given) is not int or not -_INT64 <= given < _INT64:
        raise UnsupportedRequest
    return given


def _value(given: object) -> tuple[float, bool]:
    if type(given) is float or type(given) is int:
        try:
            value = float(given)
        except OverflowError as error:
            raise UnsupportedRequest from error
        if math.isfinite(value):
            return value, False
    if isinstance(given, str) and given in _NOT_FINITE:
        return _NOT_FINITE[given]
    raise UnsupportedRequest


def _point(given: Mapping[str, Any]) -> Point:
    value, is_nan = _value(given.get("value"))
    timestamp = int64_of(given.get("timestamp"))
    return (key_of(given.get("key")), value, timestamp, int64_of(given.get("step", 0)), is_nan)


def metric_of(content: Mapping[str, Any]) -> Batch:
    """Read `runs/log-metric`. Raises Unusual."""
    _require_only_keys(content, "run_id", "run_uuid", "key", "value", "timestamp", "step")
    return Batch(run_id_of(content), (_point(content),))


def param_of(content: Mapping[str, Any]) -> Batch:
    """Read `runs/log-parameter`. Raises Unusual."""
    _require_only_keys(content, "run_id", "run_uuid", "key", "value")
    key = key_of(content.get("key"))
    return Batch(run_id_of(content), params={key: _text(content.get("value"), MOST_PARAM)})


def tag_of(content: Mapping[str, Any]) -> Batch:
    """Read `runs/set-tag`. Raises Unusual."""
    _require_only_keys(content, "run_id", "run_uuid", "key", "value")
    key = key_of(content.get("key"))
    return Batch(run_id_of(content), tags={key: _text(content.get("value"), _MOST_TAG)})


def batch_of(content: Mapping[str, Any], size: int) -> Batch:
    """Read `runs/log-batch`, whose body has `size` bytes. Raises Unusual."""
    _require_only_keys(content, "run_id", "run_uuid", "metrics", "params", "tags")
    metrics, params, tags = (_list_field(content, name) for name in ("metrics", "params", "tags"))
    if (
        size > _LARGEST_BATCH_BYTES
        or len(metrics) > MOST_METRICS
        or len(params) > MOST_PARAMS
        or len(tags) > MOST_TAGS
        or len(metrics) + len(params) + len(tags) > MOST_METRICS
    ):
        raise UnsupportedRequest
    run_id = run_id_of(content)
    for metric in metrics:
        _require_only_keys(metric, "key", "value", "timestamp", "step", "run_id")
        # `mlflow.log_metrics` repeats the run's id with each metric.
        if metric.get("run_id", run_id) != run_id:
            raise UnsupportedRequest
    named = pairs_of(params, MOST_PARAM)
    if len(named) != len(params):
        raise UnsupportedRequest
    points = tuple(_point(metric) for metric in metrics)
    return Batch(run_id, points, named, pairs_of(tags, _MOST_TAG))


def _list_field(content: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    result = content.get(name, [])
    if not isinstance(result, list) or not all(isinstance(item, dict) for item in result):
        raise UnsupportedRequest
    return result


def pairs_of(listed: list[dict[str, Any]], most: int = _MOST_TAG) -> dict[str, str]:
    """Return keys and values of parameters or tags. Raises Unusual."""
    pairs: dict[str, str] = {}
    for item in listed:
        _require_only_keys(item, "key", "value")
        pairs[key_of(item.get("key"))] = _text(item.get("value"), most)
    return pairs


def tags_of(content: Mapping[str, Any]) -> dict[str, str]:
    """Return the tags of a body. Raises Unusual."""
    return pairs_of(_list_field(content, "tags"))
