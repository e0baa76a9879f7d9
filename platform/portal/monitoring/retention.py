"""Retention of captured predictions."""

import shutil
from datetime import timedelta

from portal.core import clock
from portal.endpoints.models import Endpoint
from portal.monitoring.models import (
    Alert,
    AlertDelivery,
    CapturedHour,
    DriftWindow,
    EmptyLabel,
    HourSummary,
    Label,
)
from portal.monitoring.monitor_settings import settings_of
from portal.monitoring.paths import HOUR, flat_hour, raw_hour, raw_hours

_SUMMARIES = timedelta(days=400)
_ALERTS = timedelta(days=365)
_TOLD = timedelta(days=30)


def delete_expired() -> int:
    """Delete data beyond the retention time of its endpoint. Returns the number of hours."""
    gone = 0
    for endpoint in Endpoint.objects.all():
        before = clock.now() - timedelta(days=settings_of(endpoint).keep_days) - HOUR
        for hour, _ in list(raw_hours(endpoint.pk)):
            if hour < before:
                shutil.rmtree(raw_hour(endpoint.pk, hour), ignore_errors=True)
        old = CapturedHour.objects.filter(endpoint=endpoint, hour__lt=before)
        for row in old:
            shutil.rmtree(flat_hour(endpoint.pk, row.hour), ignore_errors=True)
            gone += 1
        old.delete()
        Label.objects.filter(endpoint=endpoint, hour__lt=before).delete()
        EmptyLabel.objects.filter(endpoint=endpoint, hour__lt=before).delete()
    timestamp = clock.now()
    HourSummary.objects.filter(hour__lt=timestamp - _SUMMARIES).delete()
    DriftWindow.objects.filter(ends_at__lt=timestamp - _SUMMARIES).delete()
    Alert.objects.filter(resolved_at__lt=timestamp - _ALERTS).delete()
    AlertDelivery.objects.filter(created_at__lt=timestamp - _TOLD).delete()
    return gone
