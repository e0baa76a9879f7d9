"""Reads traffic for charts: requests per second, latency and errors by the minute."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from django.db.models import Q, Sum

from portal.core import clock
from portal.endpoints.canary_analysis import percentile_ms
from portal.endpoints.models import (
    Endpoint,
    Replica,
    TrafficCounts,
    TrafficHour,
    TrafficMinute,
)
from slipway.schemas.serving import LATENCY_BOUNDS_MS


@dataclass
class Minute:
    """Traffic of one minute, or of several in a row: of `seconds` seconds."""

    at: datetime
    seconds: float = 60.0
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
        return (self.answered + self.refused + self.failed) / self.seconds

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


def requests_per_minute(endpoint_ids: Sequence[str], *, minutes: int) -> dict[str, list[int]]:
    """Return the requests that reached models in each of the last `minutes`, oldest first.

    The minute that has just begun is left out. Endpoints without traffic have zeros.
    """
    counts = {pk: [0] * minutes for pk in endpoint_ids}
    if not counts:
        return counts
    end = clock.now().replace(second=0, microsecond=0)
    since = end - timedelta(minutes=minutes)
    rows = TrafficMinute.objects.filter(endpoint__in=counts, at__gte=since, at__lt=end)
    sums = (
        rows.values("endpoint_id", "at")
        .order_by()
        .annotate(requests=Sum("answered") + Sum("refused") + Sum("failed"))
    )
    for row in sums:
        minute = int((row["at"] - since).total_seconds() // 60)
        counts[row["endpoint_id"]][minute] += row["requests"]
    return counts


@dataclass(frozen=True)
class TimeRange:
    """A time range of traffic charts, up to now. A point of a chart covers `step_minutes`."""

    label: str
    minutes: int
    step_minutes: int


# A chart has at most 180 points.
RANGES = {
    "15m": TimeRange("Last 15 minutes", 15, 1),
    "1h": TimeRange("Last hour", 60, 1),
    "6h": TimeRange("Last 6 hours", 6 * 60, 5),
    "24h": TimeRange("Last 24 hours", 24 * 60, 10),
    "7d": TimeRange("Last 7 days", 7 * 24 * 60, 60),
    "30d": TimeRange("Last 30 days", 30 * 24 * 60, 4 * 60),
    "90d": TimeRange("Last 90 days", 90 * 24 * 60, 12 * 60),
}


def traffic_in(endpoint: Endpoint, chosen: TimeRange) -> list[Minute]:
    """Return sums of traffic in steps of `chosen`, oldest first, without steps without traffic.

    Steps begin at multiples of their length since 1970.
    """
    now = clock.now()
    since = now - timedelta(minutes=chosen.minutes)
    step_s = chosen.step_minutes * 60
    steps: dict[datetime, list[TrafficCounts]] = defaultdict(list)
    for row in _counts_since(endpoint, since):
        start_s = row.at.timestamp() // step_s * step_s
        steps[datetime.fromtimestamp(start_s, tz=UTC)].append(row)
    return [
        sum_of(at, minutes, seconds=_covered_s(at, step_s, since, now))
        for at, minutes in steps.items()
    ]


def _counts_since(endpoint: Endpoint, since: datetime) -> Iterator[TrafficCounts]:
    """Yield hours, then minutes. An hour that began before `since` is left out."""
    for rows in (TrafficHour.objects, TrafficMinute.objects):
        yield from rows.filter(endpoint=endpoint, at__gte=since).order_by("at").iterator()


def _covered_s(at: datetime, step_s: int, since: datetime, now: datetime) -> float:
    """Return the seconds of a step inside the time range, at least the minute that was counted."""
    begin, end = max(at, since), min(at + timedelta(seconds=step_s), now)
    return max(60.0, (end - begin).total_seconds())


def ready_replicas(endpoint: Endpoint, since: datetime) -> list[tuple[datetime, int]]:
    """Return the number of ready replicas from each of its changes on, beginning at `since`."""
    changes: dict[datetime, int] = defaultdict(int)
    replicas = Replica.objects.filter(endpoint=endpoint, ready_at__isnull=False).filter(
        Q(workload__ended_at=None) | Q(workload__ended_at__gt=since)
    )
    ready = 0
    for begins, drains, ends in replicas.values_list(
        "ready_at", "draining_since", "workload__ended_at"
    ):
        end = min((at for at in (drains, ends) if at is not None), default=None)
        if end is not None and end <= since:
            continue
        if begins is None or begins <= since:  # never None, by the filter
            ready += 1
        else:
            changes[begins] += 1
        if end is not None:
            changes[end] -= 1
    counts = [(since, ready)]
    for at in sorted(changes):
        ready += changes[at]
        counts.append((at, ready))
    return counts


def sum_of(at: datetime, rows: Iterable[TrafficCounts], *, seconds: float = 60.0) -> Minute:
    """Return the sum of rows, which cover `seconds` seconds from `at` on."""
    minute = Minute(at, seconds)
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
