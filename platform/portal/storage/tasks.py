"""Celery tasks of the app."""

from datetime import timedelta

from portal.core.enqueue import background_task
from portal.storage import retention

PERIODIC = {"storage.sweep": timedelta(hours=1)}


@background_task("storage.sweep")
def sweep() -> None:
    """Free unreferenced bytes. Each run searches a 16th of the store for orphaned objects."""
    retention.sweep(digest_prefixes=[retention.current_shard()])
