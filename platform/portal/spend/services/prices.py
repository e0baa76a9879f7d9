"""Prices of bare resources, and a preview of the effect of a new price of a tier."""

from datetime import UTC, timedelta

from django.db import transaction
from django.db.models import Sum

from portal.accounts import audit
from portal.compute.models import Tier
from portal.core import clock
from portal.core.errors import NotFound
from portal.spend.models import DayTotal, RatePrice
from portal.spend.rates import RESOURCES, SUGGESTED
from portal.workloads.models import Lease
from slipway.schemas.money import charged
from slipway.schemas.spend import PriceEffect, RateOut

_LOOKED_AT = timedelta(days=30)


def current_rates() -> list[RateOut]:
    """Return the current price of every resource. A suggested price has no `effective_from`."""
    values: dict[str, RatePrice] = {}
    for price in RatePrice.objects.order_by("effective_from", "pk"):
        values[price.resource] = price
    return [
        RateOut(
            resource=name,
            nano_usd_per_hour=values[name].nano_usd_per_hour if name in values else SUGGESTED[name],
            effective_from=values[name].effective_from if name in values else None,
        )
        for name in RESOURCES
    ]


def price_resource(*, resource: str, nano_usd_per_hour: int) -> RateOut:
    """Set the price of a bare resource from now on, not for earlier usage. Raise NotFound."""
    now = {rate.resource: rate for rate in current_rates()}
    if resource not in now:
        raise NotFound
    if now[resource].nano_usd_per_hour == nano_usd_per_hour:
        return now[resource]
    with transaction.atomic():
        price = RatePrice.objects.create(
            resource=resource, nano_usd_per_hour=nano_usd_per_hour, effective_from=clock.now()
        )
        audit.record(
            "rate.change",
            kind="rate",
            target=price,
            label=resource,
            before={"nano_usd_per_hour": now[resource].nano_usd_per_hour},
            after={"nano_usd_per_hour": nano_usd_per_hour},
        )
    return RateOut(
        resource=resource,
        nano_usd_per_hour=nano_usd_per_hour,
        effective_from=price.effective_from,
    )


def effect_of_price(*, tier: Tier, nano_usd_per_hour: int) -> PriceEffect:
    """Return the effect of a new price of a tier on running work and on the last 30 days."""
    held = Lease.objects.open().filter(tier=tier)
    terms = list(held.values_list("price_percent", "discount_percent"))
    since = clock.now().astimezone(UTC).date() - _LOOKED_AT
    days = DayTotal.objects.filter(tier=tier.pk, day__gt=since)
    spent = int(days.aggregate(all=Sum("nano_usd"))["all"] or 0)
    old = tier.nano_usd_per_hour
    return PriceEffect(
        tier=tier.slug,
        now_nano_usd_per_hour=old,
        new_nano_usd_per_hour=nano_usd_per_hour,
        running=len(terms),
        running_now_nano_usd_per_hour=sum(
            charged(old, percent=percent, discount=discount) for percent, discount in terms
        ),
        running_new_nano_usd_per_hour=sum(
            charged(nano_usd_per_hour, percent=percent, discount=discount)
            for percent, discount in terms
        ),
        last_30_days_nano_usd=spent,
        last_30_days_new_nano_usd=spent * nano_usd_per_hour // old if old else spent,
    )
