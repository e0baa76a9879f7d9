"""Dashboards of clusters that people have opened."""

from typing import ClassVar

from django.db import models
from django.db.models import Q

from portal.accounts.models import ApiToken, User
from portal.compute.models import Node
from portal.core.models import IdField, Row
from portal.workloads.models.leases import Lease


class DashboardSessionQuerySet(models.QuerySet["DashboardSession"]):
    """Queries of opened dashboards. `portal.workloads.services.dashboards` opens and ends them."""

    def open(self) -> "DashboardSessionQuerySet":
        """Return those that have not ended."""
        return self.filter(ended_at__isnull=True)

    def at(self, node: Node) -> "DashboardSessionQuerySet":
        """Return open ones in tasks of a node."""
        return self.open().filter(lease__node=node, lease__ended_at__isnull=True)


class DashboardSession(Row):
    """The dashboard of one attempt of a cluster, opened by one person, at an origin of its own.

    `label` is the first part of its host name. The ticket opens it once until `ticket_until`, and
    leaves the browser with a key. Tickets and keys are stored as hashes. It was opened with `token`
    or with the session `session_key` of a browser, whose person had the password of `proof`.
    `seen_at` is when it was last used. `reason` says why it ended.
    """

    id = IdField("dsb")
    lease = models.ForeignKey(Lease, on_delete=models.CASCADE, related_name="+")
    user = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    label = models.CharField(max_length=32, unique=True)
    ticket_hash = models.CharField(max_length=64)
    ticket_until = models.DateTimeField()
    key_hash = models.CharField(max_length=64, blank=True)
    token = models.ForeignKey(ApiToken, null=True, on_delete=models.CASCADE, related_name="+")
    session_key = models.CharField(max_length=40, blank=True)
    proof = models.CharField(max_length=128, blank=True)
    seen_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)
    reason = models.CharField(max_length=32, blank=True)

    objects: ClassVar[DashboardSessionQuerySet] = DashboardSessionQuerySet.as_manager()  # type: ignore[assignment]

    class Meta(Row.Meta):
        indexes: ClassVar[list[models.Index]] = [
            models.Index(
                fields=["lease"], condition=Q(ended_at__isnull=True), name="dashboard_open"
            ),
        ]
