"""Holdings, which cost without being a workload (bytes and nodes), and prices of bare resources."""

from typing import Any, ClassVar, NoReturn

from django.db import models
from django.db.models import Q

from portal.core import clock
from portal.core.models import IdField, Row


class HoldingQuerySet(models.QuerySet["Holding"]):
    """Queryset of holdings."""

    def open(self) -> "HoldingQuerySet":
        """Current holdings."""
        return self.filter(end_ms__isnull=True)


class Holding(Row):
    """An allocation from a time on: bytes of one sort of one project, or one whole node.

    It is metered as a lease is. When the amount changes, this one ends and another begins.
    """

    id = IdField("hold")
    kind = models.CharField(max_length=32)
    what = models.CharField(max_length=32)
    project = models.CharField(max_length=64, blank=True)
    team = models.CharField(max_length=64, blank=True)
    node = models.CharField(max_length=64, blank=True)
    cpu_millis = models.BigIntegerField(default=0)
    memory_bytes = models.BigIntegerField(default=0)
    gpus = models.IntegerField(default=0)
    stored_bytes = models.BigIntegerField(default=0)
    begin_ms = models.BigIntegerField()
    end_ms = models.BigIntegerField(null=True, blank=True)
    billed_to_ms = models.BigIntegerField()
    billed_nano_usd = models.BigIntegerField(default=0)
    is_settled = models.BooleanField(default=False)

    objects: ClassVar[HoldingQuerySet] = HoldingQuerySet.as_manager()  # type: ignore[assignment]

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(
                fields=["kind", "what", "project", "node"],
                condition=Q(end_ms__isnull=True),
                name="holding_one_open",
            ),
        ]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["id"], condition=Q(is_settled=False), name="holding_unsettled"),
        ]


class RatePriceQuerySet(models.QuerySet["RatePrice"]):
    """Append-only queryset: update and delete raise TypeError. The database refuses both too."""

    def update(self, **_changes: Any) -> NoReturn:
        raise TypeError("prices are only ever added")

    def delete(self) -> NoReturn:
        raise TypeError("prices are only ever added")


class RatePrice(models.Model):
    """The price of a bare resource from `effective_from` on, in nano-USD an hour of its unit.

    Units: `cpu` one CPU, `memory` one GiB, `gpu` one GPU, `storage` one GB (10⁹ bytes).
    """

    id = IdField("rate")
    resource = models.CharField(max_length=16)
    nano_usd_per_hour = models.BigIntegerField()
    effective_from = models.DateTimeField(default=clock.now)

    objects: ClassVar[RatePriceQuerySet] = RatePriceQuerySet.as_manager()  # type: ignore[assignment]

    class Meta:
        ordering: ClassVar[list[str]] = ["-effective_from", "-id"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(
                fields=["resource", "effective_from"], name="rate_price_once_a_moment"
            ),
            models.CheckConstraint(
                condition=Q(nano_usd_per_hour__gte=0), name="rate_price_not_negative"
            ),
        ]
