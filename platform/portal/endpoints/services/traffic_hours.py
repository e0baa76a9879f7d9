"""Keeps traffic for longer than its minutes: old minutes become hours."""

from datetime import datetime, timedelta

from django.db import transaction

from portal.endpoints.models import TrafficHour, TrafficMinute

MINUTES_KEPT = timedelta(days=30)
HOURS_KEPT = timedelta(days=400)
_HOUR = timedelta(hours=1)
_SUMS = (
    *("answered", "refused", "failed", "rejected", "unauthorized"),
    *("fallback", "captured", "uncaptured", "sum_ms", "queue_ms"),
)


def sum_old_minutes(timestamp: datetime) -> None:
    """Replace minutes older than `MINUTES_KEPT` by their hours, and delete hours that expired.

    Each hour of a revision is one transaction, so counts are neither lost nor doubled. A minute
    that is reported even later is added to its hour the next time.
    """
    while _sum_oldest_hour(hour_of(timestamp - MINUTES_KEPT)):
        pass
    TrafficHour.objects.filter(at__lt=timestamp - HOURS_KEPT).delete()


def hour_of(timestamp: datetime) -> datetime:
    """Return the beginning of the hour."""
    return timestamp.replace(minute=0, second=0, microsecond=0)


@transaction.atomic
def _sum_oldest_hour(before: datetime) -> bool:
    """Sum one hour of one revision. Return False if no minute is old enough."""
    oldest = TrafficMinute.objects.filter(at__lt=before).order_by("at").first()
    if oldest is None:
        return False
    at = hour_of(oldest.at)
    hour, _ = TrafficHour.objects.select_for_update(no_key=True).get_or_create(
        endpoint_id=oldest.endpoint_id, revision_id=oldest.revision_id, at=at
    )
    minutes = list(
        TrafficMinute.objects.select_for_update()
        .filter(endpoint=oldest.endpoint_id, revision_id=oldest.revision_id)
        .filter(at__gte=at, at__lt=at + _HOUR)
        .order_by("at")
    )
    for minute in minutes:
        for name in _SUMS:
            setattr(hour, name, getattr(hour, name) + getattr(minute, name))
        hour.counts = summed_counts(hour.counts, minute.counts)
    hour.save()
    TrafficMinute.objects.filter(pk__in=[minute.pk for minute in minutes]).delete()
    return True


def summed_counts(counts: list[int], others: list[int]) -> list[int]:
    """Return the sums of two lists of counts, of which one may be shorter."""
    longest = max(len(counts), len(others))
    padded = [[*row, *([0] * (longest - len(row)))] for row in (counts, others)]
    return [a + b for a, b in zip(*padded, strict=True)]
