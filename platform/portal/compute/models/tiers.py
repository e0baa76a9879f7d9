"""Hardware tiers and their price history per hour."""

from typing import Any, ClassVar, NoReturn

from django.db import models
from django.db.models import Q

from portal.compute.models.pools import FULL_PRICE, Pool
from portal.compute.resources import Amount, Need
from portal.core import clock
from portal.core.models import IdField, Row
from slipway.schemas.money import charged
from slipway.schemas.workloads import DEFAULT_DISCOUNT, MOST_DISCOUNT


class TierQuerySet(models.QuerySet["Tier"]):
    """Queries of tiers."""

    def offered(self) -> "TierQuerySet":
        """Return the tiers that new work may use, the cheapest first."""
        return self.filter(is_active=True).order_by("nano_usd_per_hour", "slug")


class Tier(Row):
    """Resources of one task. They never change, because running and past work refers to them.

    `nano_usd_per_hour` is the current price. `TierPrice` holds the price history.
    `preemptible_discount` is how much less preemptible work costs that starts now, in percent.
    """

    id = IdField("tier")
    slug = models.CharField(max_length=48, unique=True)
    name = models.CharField(max_length=100)
    cpu_millis = models.BigIntegerField()
    memory_bytes = models.BigIntegerField()
    gpus = models.IntegerField(default=0)
    gpu_model = models.CharField(max_length=64, blank=True)
    labels = models.JSONField(default=dict)
    nano_usd_per_hour = models.BigIntegerField()
    preemptible_discount = models.PositiveSmallIntegerField(
        default=DEFAULT_DISCOUNT, db_default=DEFAULT_DISCOUNT
    )
    is_active = models.BooleanField(default=True)

    objects: ClassVar[TierQuerySet] = TierQuerySet.as_manager()  # type: ignore[assignment]

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.CheckConstraint(
                condition=Q(
                    cpu_millis__gt=0, memory_bytes__gt=0, gpus__gte=0, nano_usd_per_hour__gte=0
                ),
                name="tier_sensible",
            ),
            models.CheckConstraint(
                condition=Q(preemptible_discount__gte=0, preemptible_discount__lte=MOST_DISCOUNT),
                name="tier_discount_in_range",
            ),
        ]

    def __str__(self) -> str:
        return self.slug

    @property
    def amount(self) -> Amount:
        """Resources of one task."""
        return Amount(self.cpu_millis, self.memory_bytes, self.gpus)

    def price(self, *, is_preemptible: bool = False, pool: Pool | None = None) -> int:
        """Return nano-USD an hour of one task that starts now, on own nodes or in a pool."""
        discount = self.preemptible_discount if is_preemptible else 0
        percent = FULL_PRICE if pool is None else pool.price_percent
        return charged(self.nano_usd_per_hour, percent=percent, discount=discount)

    @property
    def need(self) -> Need:
        """Requirements of one task on a node."""
        return Need(self.amount, self.gpu_model, tuple(sorted(self.labels.items())))


class TierPriceQuerySet(models.QuerySet["TierPrice"]):
    """Append-only queryset: update and delete raise TypeError. The database refuses both too."""

    def update(self, **_changes: Any) -> NoReturn:
        raise TypeError("prices are only ever added")

    def delete(self) -> NoReturn:
        raise TypeError("prices are only ever added")


class TierPrice(models.Model):
    """Price of a tier from `effective_from` on, until a later row of the same tier."""

    id = IdField("price")
    tier = models.ForeignKey(Tier, on_delete=models.PROTECT, related_name="prices")
    nano_usd_per_hour = models.BigIntegerField()
    effective_from = models.DateTimeField(default=clock.now)

    objects: ClassVar[TierPriceQuerySet] = TierPriceQuerySet.as_manager()  # type: ignore[assignment]

    class Meta:
        ordering: ClassVar[list[str]] = ["-effective_from", "-id"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(
                fields=["tier", "effective_from"], name="tier_price_once_a_moment"
            ),
            models.CheckConstraint(
                condition=Q(nano_usd_per_hour__gte=0), name="tier_price_not_negative"
            ),
        ]
