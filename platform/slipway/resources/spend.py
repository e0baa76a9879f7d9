"""Spend: by project, person, tier, kind, day and run, idle waste, prices."""

from collections.abc import Sequence
from contextlib import AbstractContextManager

from slipway.connection import Connection, Download
from slipway.resources.requests import build
from slipway.schemas.base import PageOf
from slipway.schemas.spend import IdleOut, OverheadOut, PriceEffect, RateIn, RateOut, SpendOut


class Spend:
    """Spend of the caller's projects, live.

    `window` is `today`, `7d`, `month` (the present one) or a month such as `2026-11`, in UTC.

    GET spend · projects/{slug}/spend · spend/installation · spend/idle · spend/overhead ·
    spend/export · spend/rates · tiers/{slug}/price-effect · PUT spend/rates/{resource}
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def get(self, *, window: str = "month", project: str | None = None) -> SpendOut:
        """Return what one project has cost, or all in sight together."""
        segments = ("projects", project, "spend") if project else ("spend",)
        return self._connection.fetch(SpendOut, "GET", *segments, query={"window": window})

    def installation(self, *, window: str = "month") -> SpendOut:
        """Return the spend of the installation, for administrators."""
        segments = ("spend", "installation")
        return self._connection.fetch(SpendOut, "GET", *segments, query={"window": window})

    def idle(self, *, window: str = "month") -> Sequence[IdleOut]:
        """Return what is paid for and hardly used, by cause."""
        value = self._connection.fetch(
            PageOf[IdleOut], "GET", "spend", "idle", query={"window": window}
        )
        return value.items

    def overhead(self, *, window: str = "month") -> OverheadOut:
        """Return what machines of node groups cost beyond the work on them, for administrators."""
        return self._connection.fetch(
            OverheadOut, "GET", "spend", "overhead", query={"window": window}
        )

    def export(
        self, *, window: str = "month", project: str | None = None
    ) -> AbstractContextManager[Download]:
        """Receive the lines as a CSV of FOCUS columns: `with … as export: for chunk in export`."""
        segments = ("projects", project, "spend") if project else ("spend",)
        return self._connection.stream(*segments, "export", query={"window": window})

    def rates(self) -> Sequence[RateOut]:
        """Return the prices of bare resources."""
        return self._connection.fetch(PageOf[RateOut], "GET", "spend", "rates").items

    def price_resource(self, resource: str, nano_usd_per_hour: int) -> RateOut:
        """Price `cpu`, `memory` (a GiB), `gpu` or `storage` (a GB) from now on."""
        body = build(RateIn, nano_usd_per_hour=nano_usd_per_hour)
        return self._connection.fetch(RateOut, "PUT", "spend", "rates", resource, body=body)

    def price_effect(self, tier: str, nano_usd_per_hour: int) -> PriceEffect:
        """Return what a new price of a tier would change. Nothing is set."""
        return self._connection.fetch(
            PriceEffect,
            "GET",
            *("tiers", tier, "price-effect"),
            query={"nano_usd_per_hour": nano_usd_per_hour},
        )
