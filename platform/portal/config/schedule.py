"""Periodic tasks: apps declare them, the leader runs them when they are due.

An app writes `PERIODIC = {"app.task": timedelta(...)}` into its `tasks.py`, beside the task.
"""

from datetime import timedelta
from importlib import import_module

from django.apps import apps
from django.db.models.functions import Now
from django.utils.module_loading import module_has_submodule

from portal.config.models import Schedule

Periods = dict[str, timedelta]


def declared_periods() -> Periods:
    """Return the periodic tasks of every app. Raise ValueError when two apps declare the same."""
    periods: Periods = {}
    for room in apps.get_app_configs():
        if not (room.name.startswith("portal.") and room.module):
            continue
        if not module_has_submodule(room.module, "tasks"):
            continue
        declared: Periods = getattr(import_module(f"{room.name}.tasks"), "PERIODIC", {})
        twice = periods.keys() & declared.keys()
        if twice:
            raise ValueError(f"declared as periodic by two apps: {', '.join(sorted(twice))}")
        periods |= declared
    return periods


def note_tasks(periods: Periods) -> None:
    """Insert rows of new tasks, due at once, and delete those of tasks no longer declared."""
    Schedule.objects.exclude(pk__in=periods).delete()
    known = set(Schedule.objects.values_list("pk", flat=True))
    Schedule.objects.bulk_create(
        [Schedule(task=task, next_at=Now()) for task in periods.keys() - known],
        ignore_conflicts=True,
    )


def claim_due(periods: Periods) -> list[str]:
    """Return the tasks that are due now, each claimed by moving it one period on.

    A task that was missed many times (everything was off) is due once, not many times.
    """
    due = Schedule.objects.filter(pk__in=periods, next_at__lte=Now()).order_by("next_at")
    claimed = []
    for row in due:
        moved = Schedule.objects.filter(pk=row.pk, next_at__lte=Now())
        if moved.update(next_at=Now() + periods[row.pk]):
            claimed.append(row.pk)
    return claimed
