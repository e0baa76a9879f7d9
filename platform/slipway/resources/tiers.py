"""Hardware tiers: what a task can get and what an hour of it costs."""

from collections.abc import Mapping, Sequence

from slipway.connection import Connection
from slipway.pages import Pages
from slipway.resources.requests import build
from slipway.schemas.base import PageOf
from slipway.schemas.workloads import TierChange, TierIn, TierOut, TierPriceOut


class Tiers:
    """The tiers of the installation. Administrators create and change them.

    GET tiers · POST tiers · GET, PATCH tiers/{slug} · GET tiers/{slug}/prices
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def list(self) -> Pages[TierOut]:
        """List the tiers, with how many tasks of each would fit right now."""
        return Pages(self._connection, ("tiers",), PageOf[TierOut])

    def get(self, slug: str) -> TierOut:
        """Return one tier."""
        return self._connection.fetch(TierOut, "GET", "tiers", slug)

    def create(
        self,
        name: str,
        *,
        slug: str,
        cpu_millis: int,
        memory_bytes: int,
        nano_usd_per_hour: int,
        gpus: int = 0,
        gpu_model: str | None = None,
        labels: Mapping[str, str] | None = None,
        preemptible_discount: int | None = None,
    ) -> TierOut:
        """Create a tier. CPUs in thousandths. `labels` are those a node must carry.

        Preemptible jobs cost less by `preemptible_discount`, in percent from 0 to 90.
        """
        body = build(
            TierIn,
            name=name,
            slug=slug,
            resources={"cpu_millis": cpu_millis, "memory_bytes": memory_bytes, "gpus": gpus},
            gpu_model=gpu_model,
            labels=None if labels is None else dict(labels),
            nano_usd_per_hour=nano_usd_per_hour,
            preemptible_discount=preemptible_discount,
        )
        return self._connection.fetch(TierOut, "POST", "tiers", body=body)

    def edit(
        self,
        slug: str,
        *,
        name: str | None = None,
        nano_usd_per_hour: int | None = None,
        is_active: bool | None = None,
        preemptible_discount: int | None = None,
    ) -> TierOut:
        """Change the given fields. A price is valid from now on. Inactive tiers take no work.

        A discount of preemptible jobs (in percent) holds for those that start from now on.
        """
        body = build(
            TierChange,
            name=name,
            nano_usd_per_hour=nano_usd_per_hour,
            is_active=is_active,
            preemptible_discount=preemptible_discount,
        )
        return self._connection.fetch(TierOut, "PATCH", "tiers", slug, body=body)

    def prices(self, slug: str) -> Sequence[TierPriceOut]:
        """Return every price the tier has had, newest first."""
        return self._connection.fetch_list(TierPriceOut, "tiers", slug, "prices")
