"""Hubs that open routes to notebooks, and the version of the state that they read."""

from datetime import datetime, timedelta
from typing import ClassVar

from django.db import models
from django.db.models import F, Max, Q

from portal.core.models import IdField, Row
from portal.core.notify import notify_listeners

_ONLY = 1
HEARD_EVERY = timedelta(seconds=2)


class HubVersionQuerySet(models.QuerySet["HubVersion"]):
    """Queries of the single row."""

    def raise_version(self) -> None:
        """Raise the version of the state that Hubs read. Call it in the transaction of the change.

        The row stays locked until that commits, so versions become visible in their order.
        """
        if not self.filter(pk=_ONLY).update(version=F("version") + 1):
            self.get_or_create(pk=_ONLY, defaults={"version": 1})
        notify_listeners()

    def current(self) -> int:
        """Return the version."""
        return self.values_list("version", flat=True).filter(pk=_ONLY).first() or 0


class HubVersion(models.Model):
    """Version counter of the state that Hubs read. The table has one row."""

    id = models.PositiveSmallIntegerField(primary_key=True)
    version = models.BigIntegerField(default=0)

    objects: ClassVar[HubVersionQuerySet] = HubVersionQuerySet.as_manager()  # type: ignore[assignment]


class HubQuerySet(models.QuerySet["Hub"]):
    """Queries of Hubs."""

    def record_request(self, token_hash: str, timestamp: datetime) -> None:
        """Record a request of a Hub. Once per `HEARD_EVERY` is enough."""
        long_ago = Q(heard_at=None) | Q(heard_at__lt=timestamp - HEARD_EVERY)
        self.filter(long_ago, token_hash=token_hash).update(heard_at=timestamp)

    def last_request_at(self) -> datetime | None:
        """Return when any Hub asked last."""
        last: datetime | None = self.aggregate(last=Max("heard_at"))["last"]
        return last


class Hub(Row):
    """A Hub, authenticated by its token. `heard_at` is the time of its last request."""

    id = IdField("hub")
    name = models.CharField(max_length=48, unique=True)
    token_hash = models.CharField(max_length=64, unique=True)
    heard_at = models.DateTimeField(null=True, blank=True)

    objects: ClassVar[HubQuerySet] = HubQuerySet.as_manager()  # type: ignore[assignment]
