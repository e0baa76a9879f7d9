"""Doorbells of the room."""

from datetime import timedelta

from portal.core.enqueue import doorbell
from portal.storage import retention

PERIODIC = {"storage.sweep": timedelta(hours=1)}


@doorbell("storage.sweep")
def sweep() -> None:
    """Free the bytes nothing refers to; strays are looked for in a 16th of the store at a time."""
    retention.sweep(digest_prefixes=[retention.shard_of_the_hour()])
