"""Deletes the rows of machines of node groups that were released long ago."""

from datetime import timedelta

from django.db import transaction

from portal.compute.models import GroupMachine, JoinToken
from portal.core import clock

RETENTION = timedelta(days=90)
_MOST_AT_ONCE = 1_000


def delete_old_machines() -> int:
    """Delete machines that were released or failed before RETENTION, with their join tokens.

    Their cost stays (`MachineDay`). Returns the number of machines. Idempotent.
    """
    old = GroupMachine.objects.closed().filter(created_at__lt=clock.now() - RETENTION)
    old = old.exclude(ended_at__gte=clock.now() - RETENTION).order_by("pk")
    names = list(old.values_list("name", flat=True)[:_MOST_AT_ONCE])
    with transaction.atomic():
        JoinToken.objects.filter(group__isnull=False, node_name__in=names).delete()
        return GroupMachine.objects.filter(name__in=names).delete()[0]
