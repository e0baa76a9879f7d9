"""Gateways, their reports, and the version of their snapshot."""

from typing import ClassVar

from django.db import models
from django.db.models import F

from portal.core.models import IdField, Row
from portal.core.notify import notify_listeners
from portal.endpoints.models.endpoints import Endpoint

_ONLY = 1


class ServingVersionQuerySet(models.QuerySet["ServingVersion"]):
    """Queries of the single row."""

    def raise_version(self) -> int:
        """Increment the version of the gateways' snapshot. Call it in the changing transaction.

        The row stays locked until that commits, so versions become visible in their order.
        """
        if not self.filter(pk=_ONLY).update(version=F("version") + 1):
            self.get_or_create(pk=_ONLY, defaults={"version": 1})
        notify_listeners()
        return self.current()

    def current(self) -> int:
        """Return the version."""
        return self.values_list("version", flat=True).filter(pk=_ONLY).first() or 0


class ServingVersion(models.Model):
    """Version of the gateways' snapshot: a single row that counts changes."""

    id = models.PositiveSmallIntegerField(primary_key=True)
    version = models.BigIntegerField(default=0)

    objects: ClassVar[ServingVersionQuerySet] = ServingVersionQuerySet.as_manager()  # type: ignore[assignment]


class Gateway(Row):
    """A gateway that may read the snapshot, identified by its token."""

    id = IdField("gw")
    name = models.CharField(max_length=48, unique=True)
    token_hash = models.CharField(max_length=64, unique=True)
    seen_at = models.DateTimeField(null=True, blank=True)


class GatewayProcess(models.Model):
    """One process of a gateway since it started, and its newest report."""

    gateway = models.ForeignKey(Gateway, on_delete=models.CASCADE, related_name="processes")
    boot_id = models.CharField(max_length=64)
    sequence = models.BigIntegerField()
    snapshot_version = models.BigIntegerField()
    seen_at = models.DateTimeField()
    last = models.JSONField(default=dict)

    class Meta:
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["gateway", "boot_id"], name="gateway_process_once"),
        ]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["seen_at"], name="gateway_process_by_age"),
        ]


class TrafficCounts(models.Model):
    """Traffic of a revision in a time span. `revision_id` "" is traffic that reached no revision.

    `counts` are the answers by latency, in the buckets of `LATENCY_BOUNDS_MS`.
    """

    endpoint = models.ForeignKey(Endpoint, on_delete=models.CASCADE, related_name="+")
    revision_id = models.CharField(max_length=32, blank=True)
    at = models.DateTimeField()
    answered = models.BigIntegerField(default=0)
    refused = models.BigIntegerField(default=0)
    failed = models.BigIntegerField(default=0)
    rejected = models.BigIntegerField(default=0)
    unauthorized = models.BigIntegerField(default=0)
    fallback = models.BigIntegerField(default=0)
    captured = models.BigIntegerField(default=0)
    uncaptured = models.BigIntegerField(default=0)
    sum_ms = models.FloatField(default=0.0)
    queue_ms = models.FloatField(default=0.0)
    counts = models.JSONField(default=list)

    class Meta:
        abstract = True


class TrafficMinute(TrafficCounts):
    """Traffic of a minute, as gateways report it."""

    class Meta:
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(
                fields=["endpoint", "revision_id", "at"], name="traffic_once_a_minute"
            ),
        ]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["at"], name="traffic_by_age"),
        ]


class TrafficHour(TrafficCounts):
    """Traffic of an hour whose minutes are no longer stored."""

    class Meta:
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(
                fields=["endpoint", "revision_id", "at"], name="traffic_once_an_hour"
            ),
        ]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["at"], name="traffic_hours_by_age"),
        ]
