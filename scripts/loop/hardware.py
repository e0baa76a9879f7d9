"""Hardware of the demo: the cheapest tier, and a smaller tier for replicas."""

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
    """Wait until this machine has joined as a node, and return its cheapest tier."""

    def cheapest_offer() -> TierOut | None:
        tiers = (
            tier for tier in client.tiers.list() if tier.is_active and tier.slug != REPLICA_TIER
        )
        return min(tiers, key=lambda tier: tier.nano_usd_per_hour, default=None)

    return wait_for(cheapest_offer, "a node with a tier", within_s=_NODE_WITHIN_S)


def create_replica_tier(client: Client) -> None:
    """Create a tier of half the cheapest tier's size, as an administrator.

    A canary needs two replicas, and the old one stays warm for a while. On two processors they
    would leave no capacity for a notebook. The tier has the same price as the cheapest one and is
    sorted after it, so that it does not become the default tier.
    """
    try:
        client.tiers.get(REPLICA_TIER)
    except NotFound:
        smallest = cheapest(client)
        memory_bytes = smallest.resources.memory_bytes
        client.tiers.create(
            "Demo replica",
            slug=REPLICA_TIER,
            cpu_millis=max(1, smallest.resources.cpu_millis // 2),
            memory_bytes=min(memory_bytes, max(_LEAST_MEMORY_BYTES, memory_bytes // 2)),
            nano_usd_per_hour=smallest.nano_usd_per_hour,
        )


def show_hardware(client: Client) -> None:
    """Print the default tier of notebooks and jobs."""
    tier = cheapest(client)
    show("hardware", f"{tier.name}, {dollars(tier.nano_usd_per_hour)} an hour")
