"""What the demo runs on: the tiers of this machine, and one that is small enough for replicas."""

from typing import Final

from scripts.loop.steps import show, wait_for
from slipway import Client
from slipway.errors import NotFound
from slipway.schemas.money import dollars
from slipway.schemas.workloads import TierOut

REPLICA_TIER: Final = "demo-replica"
_NODE_WITHIN_S: Final = 300.0
_LEAST_MEMORY_BYTES: Final = 2**30


def cheapest(client: Client) -> TierOut:
    """Wait until this machine has joined as a node, by itself; returns what it offers as least."""

    def look() -> TierOut | None:
        offered = (one for one in client.tiers.list() if one.is_active and one.slug != REPLICA_TIER)
        return min(offered, key=lambda tier: tier.nano_usd_per_hour, default=None)

    return wait_for(look, "hardware to run on", within_s=_NODE_WITHIN_S)


def offer_tier(client: Client) -> None:
    """Offer half of the cheapest tier, as an administrator.

    A canary takes two replicas, and the old one stays warm for a while: on two processors they
    would leave nothing for a notebook. It costs as much as the cheapest and stands behind it, so
    that it does not become what people get who name no tier.
    """
    try:
        client.tiers.get(REPLICA_TIER)
    except NotFound:
        small = cheapest(client)
        memory_bytes = small.resources.memory_bytes
        client.tiers.create(
            "Demo replica",
            slug=REPLICA_TIER,
            cpu_millis=max(1, small.resources.cpu_millis // 2),
            memory_bytes=min(memory_bytes, max(_LEAST_MEMORY_BYTES, memory_bytes // 2)),
            nano_usd_per_hour=small.nano_usd_per_hour,
        )


def show_hardware(client: Client) -> None:
    """Print what notebooks and jobs get that name no tier."""
    small = cheapest(client)
    show("hardware", f"{small.name}, {dollars(small.nano_usd_per_hour)} an hour")
