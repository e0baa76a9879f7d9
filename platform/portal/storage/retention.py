"""Sweep that frees unreferenced bytes."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice

import structlog

from portal.core import clock
from portal.storage.backend import blob_store
from portal.storage.models import Blob
from portal.storage.ports import BlobStore, CleanupResult, StoredObject

log = structlog.get_logger(__name__)
GRACE = timedelta(hours=24)
# An object without a row is an orphan, or an upload about to commit. Only its age shows which.
ABANDONED_AFTER = timedelta(hours=24)
ALL_SHARDS = tuple("0123456789abcdef")
_BATCH = 500
_MOST_AT_ONCE = 10_000
# Well below the time a background task may last.
_LONGEST_S = 120.0
# A few orphans are normal. A store full of unknown objects belongs to another installation.
_STRAYS_ALLOWED = 100


@dataclass(frozen=True)
class SweepResult:
    """Result of a sweep: unreferenced blobs, objects without a row, incomplete uploads."""

    blobs: CleanupResult
    orphans: CleanupResult
    drafts: CleanupResult

    @property
    def bytes_freed(self) -> int:
        """Bytes freed in all."""
        return (self.blobs + self.orphans + self.drafts).size_bytes


def sweep(*, grace: timedelta = GRACE, digest_prefixes: Sequence[str] = ALL_SHARDS) -> SweepResult:
    """Free blobs that no file has referred to for longer than `grace`, and abandoned uploads.

    Orphaned objects are searched among the digests that begin with one of the prefixes. Idempotent,
    safe to run concurrently with itself and with uploads, and safe to stop at any point: the next
    sweep continues. Stops by itself after two minutes. Raises Unavailable when the store does not
    answer.
    """
    store = blob_store()
    until = time.monotonic() + _LONGEST_S
    abandoned = clock.now() - ABANDONED_AFTER
    swept = SweepResult(
        drafts=store.clear_drafts(before=abandoned),
        blobs=_free_blobs(store, clock.now() - grace, until),
        orphans=sum(
            (_free_orphans(store, prefix, abandoned, until) for prefix in digest_prefixes),
            CleanupResult(),
        ),
    )
    log.info(
        "storage_swept",
        blobs=swept.blobs.count,
        orphans=swept.orphans.count,
        drafts=swept.drafts.count,
        bytes_freed=swept.bytes_freed,
    )
    return swept


def current_shard() -> str:
    """Return the shard of the current hour. Each one comes up every 16 hours."""
    return ALL_SHARDS[int(clock.now().timestamp() // 3600) % len(ALL_SHARDS)]


def _free_blobs(store: BlobStore, before: datetime, until: float) -> CleanupResult:
    current = Blob.objects.current()
    current.filter(unreferenced_since__isnull=False).referenced().update(unreferenced_since=None)
    current.filter(unreferenced_since__isnull=True).unreferenced().update(
        unreferenced_since=clock.now()
    )
    idle = current.filter(unreferenced_since__lt=before).order_by("unreferenced_since")
    for blob_id in idle.values_list("pk", flat=True)[:_MOST_AT_ONCE]:
        Blob.objects.condemn(blob_id, unreferenced_before=before)
    cleared = CleanupResult()
    for blob in Blob.objects.filter(condemned_at__isnull=False)[:_MOST_AT_ONCE]:
        if time.monotonic() > until:
            break
        cleared += CleanupResult(1, store.delete(blob.key))
        blob.delete()
    return cleared


def _free_orphans(store: BlobStore, prefix: str, before: datetime, until: float) -> CleanupResult:
    """Remove objects without a blob: uploads killed before their commit, replaced bytes."""
    known = 0
    orphans: list[StoredObject] = []
    entries = store.entries(digest_prefix=prefix)
    while time.monotonic() < until and (batch := list(islice(entries, _BATCH))):
        named = set(
            Blob.objects.filter(key__in=[stored_object.key for stored_object in batch]).values_list(
                "key"
            )
        )
        known += len(named)
        old = (
            stored_object
            for stored_object in batch
            if (stored_object.key,) not in named and stored_object.modified_at < before
        )
        orphans.extend(islice(old, _MOST_AT_ONCE - len(orphans)))
    if len(orphans) > max(known, _STRAYS_ALLOWED):
        log.error("storage_mismatch", known=known, unknown=len(orphans))
        return CleanupResult()
    cleared = CleanupResult()
    for stored_object in orphans:
        if time.monotonic() > until:
            break
        cleared += CleanupResult(1, store.delete(stored_object.key))
    return cleared
