"""Forgets old runs that have started nothing: one that is skipped every minute adds up."""

from datetime import timedelta

from django.db.models import Exists, OuterRef

from portal.core import clock
from portal.pipelines.models import ScheduledRun, TriggerEvent

RETENTION = timedelta(days=90)
_MOST_AT_ONCE = 5_000


def forget_old_runs() -> int:
    """Delete old runs that were skipped or refused, and return their number.

    Runs with a job or a sweep are retained as long as those.
    """
    old = ScheduledRun.objects.started_nothing(before=clock.now() - RETENTION)
    keys = list(old.values_list("pk", flat=True)[:_MOST_AT_ONCE])
    number = ScheduledRun.objects.filter(pk__in=keys).delete()[0]
    _forget_old_events()
    return number


def _forget_old_events() -> None:
    """Delete old events of which no run is left."""
    runs = ScheduledRun.objects.filter(event=OuterRef("pk"))
    events = TriggerEvent.objects.filter(~Exists(runs), taken_at__lt=clock.now() - RETENTION)
    keys = list(events.order_by("taken_at").values_list("pk", flat=True)[:_MOST_AT_ONCE])
    TriggerEvent.objects.filter(pk__in=keys).delete()
