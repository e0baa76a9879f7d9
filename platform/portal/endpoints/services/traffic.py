"""Reads traffic for charts: requests per second, latency and errors by the minute."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from portal.core import clock
from portal.endpoints.canary_analysis import percentile_ms
from portal.endpoints.models import Endpoint, TrafficMinute
from slipway.schemas.serving import LATENCY_BOUNDS_MS

_S_A_MINUTE = 60.0


@dataclass
class Minute:
    """Traffic of one minute."""

    at: datetime
    answered: int = 0
    refused: int = 0
    failed: int = 0
    rejected: int = 0
    unauthorized: int = 0
    fallback: int = 0
    captured: int = 0
    uncaptured: int = 0
    counts: list[int] = field(default_factory=lambda: [0] * (len(LATENCY_BOUNDS_MS) + 1))

    @property
    def rps(self) -> float:
        """Requests per second that reached the model."""
        return (self.answered + self.refused + self.failed) / _S_A_MINUTE

    @property
    def p95_ms(self) -> float | None:
        """The p95 latency."""
        return self.percentile_ms(95)

    def percentile_ms(self, percent: float) -> float | None:
        """Return a percentile of the latency."""
        return percentile_ms(self.counts, LATENCY_BOUNDS_MS, percent)


def traffic_of(*, endpoint: Endpoint, minutes: int, revision_id: str = "") -> list[Minute]:
    """Return the minutes with traffic in the last `minutes`, oldest first.

    `revision_id` limits them to one revision.
    """
    since = clock.now() - timedelta(minutes=minutes)
    rows = TrafficMinute.objects.filter(endpoint=endpoint, at__gte=since)
    if revision_id:
        rows = rows.filter(revision_id=revision_id)
    values: defaultdict[datetime, list[TrafficMinute]] = defaultdict(list)
    for row in rows.order_by("at"):
        values[row.at].append(row)
    return [sum_of(at, traffic_minutes) for at, traffic_minutes in values.items()]


def sum_of(at: datetime, rows: Iterable[TrafficMinute]) -> Minute:
    """Return the sum of rows."""
    minute = Minute(at)
    for row in rows:
        minute.answered += row.answered
        minute.refused += row.refused
        minute.failed += row.failed
        minute.rejected += row.rejected
        minute.unauthorized += row.unauthorized
        minute.fallback += row.fallback
        minute.captured += row.captured
        minute.uncaptured += row.uncaptured
        for place, count in enumerate(row.counts[: len(minute.counts)]):
            minute.counts[place] += count
    return minute
