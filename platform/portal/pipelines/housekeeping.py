"""Forgets old runs that have started nothing: one that is skipped every minute adds up."""

from datetime import timedelta

from portal.core import clock
from portal.pipelines.models import ScheduledRun

RETENTION = timedelta(days=90)
_MOST_AT_ONCE = 5_000


def forget_old_runs() -> int:
    """Delete old runs that were skipped or refused, and return their number.

    Runs with a job or a sweep are retained as long as those.
    """
    old = ScheduledRun.objects.started_nothing(before=clock.now() - RETENTION)
    keys = list(old.values_list("pk", flat=True)[:_MOST_AT_ONCE])
    return ScheduledRun.objects.filter(pk__in=keys).delete()[0]
