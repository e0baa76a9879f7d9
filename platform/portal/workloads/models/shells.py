"""Shells of people in running tasks."""

from typing import ClassVar

from django.db import models
from django.db.models import Q

from portal.accounts.models import User
from portal.compute.models import Node
from portal.core.models import IdField, Row
from portal.workloads.models.leases import Lease


class ShellSessionQuerySet(models.QuerySet["ShellSession"]):
    """Queries of shells. `portal.workloads.services.shells` opens and ends them."""

    def open(self) -> "ShellSessionQuerySet":
        """Return shells that have not ended."""
        return self.filter(ended_at__isnull=True)

    def at(self, node: Node) -> "ShellSessionQuerySet":
        """Return open shells in tasks of a node."""
        return self.open().filter(lease__node=node, lease__ended_at__isnull=True)


class ShellSession(Row):
    """A shell that somebody opened in one attempt of a task.

    `seen_at` is when its output was last followed. `reason` says why it ended.
    """

    id = IdField("shl")
    lease = models.ForeignKey(Lease, on_delete=models.CASCADE, related_name="+")
    user = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    rank = models.PositiveIntegerField()
    seen_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)
    exit_code = models.IntegerField(null=True, blank=True)
    reason = models.CharField(max_length=32, blank=True)

    objects: ClassVar[ShellSessionQuerySet] = ShellSessionQuerySet.as_manager()  # type: ignore[assignment]

    class Meta(Row.Meta):
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["lease"], condition=Q(ended_at__isnull=True), name="shell_open"),
        ]
