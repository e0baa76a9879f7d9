"""Search for single predictions: by id, time, version, caller, the client's own id, a value."""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from pydantic import ValidationError

from portal.core import clock
from portal.core.errors import InvalidInput
from portal.core.pagination import decode_cursor, encode_cursor
from portal.endpoints.models import Endpoint
from portal.monitoring.adapters.parquet import (
    ANSWERED,
    ANY,
    FAILED,
    FALLBACK,
    MEMORY,
    FileReplaced,
    Flat,
    ParquetConditions,
    QueryTooLarge,
    answer_of,
)
from portal.monitoring.exact_inputs import restore_exact_integers
from portal.monitoring.models import Label, Monitor
from portal.monitoring.paths import HOUR, hour_of_prediction, parts_between
from slipway.schemas.monitoring import SelectionFilters

T = TypeVar("T")
_ALL_TIME = timedelta(days=3650)
_MOST_IDS = 200_000
_EARLIEST = datetime(2000, 1, 1, tzinfo=UTC)
_LATEST = datetime(2200, 1, 1, tzinfo=UTC)
_NO_OFFSET = re.compile(r"\A\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(:\d\d(\.\d+)?)?\Z")
_SLICE = ("feature", "operator", "value")
NUMBER = "number"
_FACTS = frozenset(
    {
        *("prediction_id", "row", "at", "revision", "model_version", "key_id", "own_id"),
        *("latency_us", "is_shadow", "draw", FAILED, FALLBACK),
    }
)


@dataclass(frozen=True)
class PredictionRow:
    """One row of a prediction. `label` is None without a label."""

    prediction_id: str
    row: int
    at: datetime
    revision_id: str
    model_version: str
    key_id: str
    own_id: str
    latency_ms: float
    status: int
    is_fallback: bool
    inputs: dict[str, Any]
    outputs: dict[str, Any]
    label: Any


@dataclass(frozen=True)
class Ids:
    """Predictions, and the files that hold them."""

    ids: set[str]
    paths: list[str]


def parse_filters(given: Mapping[str, Any]) -> SelectionFilters:
    """Parse filters of a page or of the database. A time without an offset is in UTC.

    Raises ValidationError.
    """
    moments = {name: _in_utc_text(given[name]) for name in ("since", "until") if given.get(name)}
    return SelectionFilters.model_validate({**given, **moments})


def _in_utc_text(timestamp: object) -> object:
    """Append the UTC offset: fields of pages have none, and are labelled (UTC)."""
    return (
        f"{timestamp}Z" if isinstance(timestamp, str) and _NO_OFFSET.match(timestamp) else timestamp
    )


def filters_of(given: Mapping[str, Any]) -> SelectionFilters:
    """Parse filters of a query string, ignoring empty ones. Raises InvalidInput."""
    values_by_name = {name: value for name, value in given.items() if value not in (None, "")}
    if "feature" not in values_by_name or "value" not in values_by_name:
        values_by_name = {name: item for name, item in values_by_name.items() if name not in _SLICE}
    try:
        return parse_filters(values_by_name)
    except ValidationError as error:
        fault = error.errors(include_input=False, include_url=False)[0]
        name = str(fault["loc"][0]) if fault["loc"] else "filters"
        raise InvalidInput(
            f"The filter {name} cannot be read: {fault['msg']}.",
            field=name,
            next_step="Correct it or leave it out.",
        ) from error


def clamp_time(timestamp: datetime) -> datetime:
    """Return a time, clamped to the range that every calendar supports."""
    return min(max(timestamp, _EARLIEST), _LATEST)


def search(
    endpoint: Endpoint, filters: SelectionFilters, *, cursor: str | None = None, limit: int = 50
) -> tuple[list[PredictionRow], str | None]:
    """Return a page of predictions, newest first, and the cursor of the next one.

    Failed ones are included, unless the filters exclude them.
    """
    where = condition(endpoint, filters, status=ANY)
    if cursor:
        where.after_row(*_decode_position(cursor))

    def ask(chosen: Flat) -> list[dict[str, Any]]:
        return chosen.find(where, limit=limit + 1)

    rows = retry_if_replaced(endpoint, filters, ask)
    shown = rows[:limit]
    labels = labels_of(endpoint, [row["prediction_id"] for row in shown])
    predictions = restore_exact_integers(endpoint, [_prediction_row(row, labels) for row in shown])
    more = None
    if len(rows) > limit:
        last = predictions[-1]
        more = encode_cursor(json.dumps([last.at.isoformat(), last.prediction_id, last.row]))
    return predictions, more


def retry_if_replaced(endpoint: Endpoint, filters: SelectionFilters, ask: Callable[[Flat], T]) -> T:
    """Query the files of a time range, once more if one was replaced meanwhile.

    `ask` runs in another thread, which must not use the database. Raises InvalidInput if the query
    exceeds the memory limit.
    """
    try:
        try:
            return answer_of(paths_of(endpoint, filters), ask)
        except FileReplaced:
            return answer_of(paths_of(endpoint, filters), ask)
    except QueryTooLarge as error:
        raise InvalidInput(
            f"The predictions of {endpoint.name} in this time range are too large to search at "
            f"once ({MEMORY} of memory).",
            code="predictions_too_large",
            field="since",
            next_step="Choose a shorter time range, or filter by prediction, version or caller.",
        ) from error


def paths_of(endpoint: Endpoint, filters: SelectionFilters) -> list[str]:
    """Return the flat files that can contain matching predictions."""
    until = clamp_time(filters.until) if filters.until else clock.now() + HOUR
    since = clamp_time(filters.since) if filters.since else until - _ALL_TIME
    hours = [hour_of_prediction(prediction_id) for prediction_id in filters.prediction_ids or ()]
    known = [hour for hour in hours if hour is not None]
    if known:
        # A prediction gets its id before it is answered, which takes at most some minutes.
        since, until = max(since, min(known)), min(until, max(known) + 2 * HOUR)
    return parts_between(endpoint, since, until)


def condition(
    endpoint: Endpoint, filters: SelectionFilters, *, status: str = ANSWERED
) -> ParquetConditions:
    """Return filters as a condition. Raises InvalidInput for an unknown feature.

    `status` applies if the filters have none.
    """
    where = ParquetConditions(filters.status or status)
    if filters.prediction_ids:
        where.among("prediction_id", filters.prediction_ids)
    if filters.since:
        where.time(">=", clamp_time(filters.since))
    if filters.until:
        where.time("<", clamp_time(filters.until))
    for name, value in (
        ("model_version", filters.model_version),
        ("key_id", filters.caller),
        ("own_id", filters.own_id),
    ):
        if value:
            where.fact(name, "=", value)
    if filters.feature and filters.value is not None:
        _add_feature(endpoint, where, filters.feature, filters.operator, filters.value)
    return where


def _add_feature(
    endpoint: Endpoint, where: ParquetConditions, feature: str, operator: str, value: str
) -> None:
    monitor = Monitor.objects.filter(endpoint=endpoint).values_list("columns", flat=True).first()
    columns: Mapping[str, str] = monitor or {}
    names = [name for name in (feature, f"in.{feature}", f"out.{feature}") if name in columns]
    if not columns:
        raise InvalidInput(
            f"{endpoint.name} has no processed prediction yet, so its columns are unknown.",
            code="no_such_feature",
            field="feature",
            next_step="Filter by status instead to find failed predictions.",
        )
    if not names:
        raise InvalidInput(
            f"No prediction of {endpoint.name} has a column {feature}.",
            code="no_such_feature",
            field="feature",
            next_step="Use an input or output that the monitoring page lists.",
        )
    is_number = columns[names[0]] == NUMBER
    if is_number and not _is_number(value):
        raise InvalidInput(
            f"{feature} is numeric, and {value[:60]} is not a number.",
            code="no_number",
            field="value",
            next_step="Enter a number, such as 3.5.",
        )
    where.feature(names[0], operator, value, is_number=is_number)


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _decode_position(cursor: str) -> tuple[datetime, str, int]:
    try:
        at, prediction_id, row = json.loads(decode_cursor(cursor))
        return datetime.fromisoformat(at), str(prediction_id), int(row)
    except (ValueError, TypeError) as error:
        raise InvalidInput(
            "This cursor is not valid.",
            code="invalid_cursor",
            field="cursor",
            next_step="Leave the cursor out to start from the first page.",
        ) from error


def _prediction_row(row: Mapping[str, Any], labels: Mapping[tuple[str, int], Any]) -> PredictionRow:
    return PredictionRow(
        prediction_id=row["prediction_id"],
        row=row["row"],
        at=row["at"],
        revision_id=row["revision"] or "",
        model_version=row["model_version"] or "",
        key_id=row["key_id"] or "",
        own_id=row["own_id"] or "",
        latency_ms=row["latency_us"] / 1000,
        status=row[FAILED] or 200,
        is_fallback=bool(row[FALLBACK]),
        inputs=_columns_with_prefix(row, "in."),
        outputs=_columns_with_prefix(row, "out."),
        label=labels.get((row["prediction_id"], row["row"])),
    )


def _columns_with_prefix(row: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {
        name.removeprefix(prefix): _json_value(value)
        for name, value in row.items()
        if name not in _FACTS and name.startswith(prefix)
    }


def _json_value(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value


def labels_of(endpoint: Endpoint, ids: Sequence[str]) -> dict[tuple[str, int], Any]:
    """Return the labels of predictions, by prediction and row."""
    labels: dict[tuple[str, int], Any] = {}
    for start in range(0, len(ids), 500):
        rows = Label.objects.filter(
            endpoint=endpoint, prediction_id__in=ids[start : start + 500], is_current=True
        )
        for label in rows.order_by("created_at", "pk"):
            labels[label.prediction_id, label.row] = label.value
    return labels


def ids_of(endpoint: Endpoint, filters: SelectionFilters) -> Ids:
    """Return all matching predictions. Raises InvalidInput for more than 200,000 rows."""
    where = condition(endpoint, filters)

    def ask(chosen: Flat) -> list[dict[str, Any]]:
        return chosen.find(where, limit=_MOST_IDS + 1, columns=["prediction_id"])

    rows = retry_if_replaced(endpoint, filters, ask)
    if len(rows) > _MOST_IDS:
        raise InvalidInput(
            f"More than {_MOST_IDS:,} rows match, which is too many for one selection. Narrow "
            "the filters, for example to a shorter time range, and create several selections.",
            code="too_many_predictions",
            field="filters",
            next_step="Choose a shorter time range.",
        )
    return Ids({row["prediction_id"] for row in rows}, paths_of(endpoint, filters))
