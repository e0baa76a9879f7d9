"""Volume, latency and errors by hour, as gateways count them, captured or not."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from django.db.models import Q, QuerySet, Sum
from django.db.models.functions import TruncHour

from portal.endpoints.models import Endpoint, Revision, TrafficMinute
from portal.monitoring.models import HourSummary
from slipway.schemas.monitoring import HourPoint

_ERRORS = ("failed", "refused", "rejected", "unauthorized")


def minutes_of(
    endpoint: Endpoint, since: datetime, until: datetime, revision: Revision | None
) -> QuerySet[TrafficMinute]:
    """Return the gateways' counts in a time range, optionally of one revision."""
    rows = TrafficMinute.objects.filter(endpoint=endpoint, at__gte=since, at__lt=until)
    return rows if revision is None else rows.filter(revision_id=revision.pk)


def points_of(minutes: QuerySet[TrafficMinute], hours: Iterable[HourSummary]) -> list[HourPoint]:
    """Return the hours with the numbers of answered and of failed predictions."""
    errors = _errors(minutes)
    values: defaultdict[datetime, list[HourSummary]] = defaultdict(list)
    for hour in hours:
        values[hour.hour].append(hour)
    hour_points = []
    for at in sorted(values.keys() | errors.keys()):
        rows = values[at]
        busiest = max(rows, key=lambda hour_summary_row: hour_summary_row.predictions, default=None)
        slow = busiest.latency_ms if busiest is not None else {}
        hour_points.append(
            HourPoint(
                hour=at,
                predictions=sum(hour_summary.predictions for hour_summary in rows),
                p50_ms=slow.get("p50"),
                p95_ms=slow.get("p95"),
                **(errors.get(at) or dict.fromkeys(_ERRORS, 0)),
            )
        )
    return hour_points


def _errors(minutes: QuerySet[TrafficMinute]) -> dict[datetime, dict[str, int]]:
    rows = minutes.filter(
        Q(failed__gt=0) | Q(refused__gt=0) | Q(rejected__gt=0) | Q(unauthorized__gt=0)
    ).order_by()
    by_hour = rows.annotate(hour=TruncHour("at")).values("hour")
    # A sum must not have the name of a column.
    sums = {f"all_{name}": Sum(name) for name in _ERRORS}
    summed: Iterable[dict[str, Any]] = by_hour.annotate(**sums).values("hour", *sums)
    return {item["hour"]: {name: item[f"all_{name}"] for name in _ERRORS} for item in summed}


def captures_of(minutes: QuerySet[TrafficMinute]) -> dict[str, int]:
    """Return the numbers of captured and uncaptured predictions, and of answers by a standby."""
    names = {"captured": "captured", "uncaptured": "uncaptured", "answered_as_standby": "fallback"}
    # A sum must not have the name of a column.
    sums = minutes.aggregate(**{f"all_{name}": Sum(column) for name, column in names.items()})
    return {name: sums[f"all_{name}"] or 0 for name in names}


def error_rate_of(
    points: Sequence[HourPoint], minutes: QuerySet[TrafficMinute] | None
) -> float | None:
    """Return the share of failed predictions, or None without any.

    With `minutes` all answered predictions count, captured or not.
    """
    failed = sum(hour_point.failed or 0 for hour_point in points)
    answered = sum(hour_point.predictions for hour_point in points)
    if minutes is not None:
        answered = minutes.aggregate(all=Sum("answered"))["all"] or 0
    return failed / (answered + failed) if answered + failed else None
