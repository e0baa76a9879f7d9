"""Freeing bytes that nothing refers to any more."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice

import structlog

from portal.core import clock
from portal.storage.models import Blob
from portal.storage.place import blob_store
from portal.storage.ports import BlobStore, Cleared, Entry

log = structlog.get_logger(__name__)
GRACE = timedelta(hours=24)
# An object no row names is either a stray or an upload about to commit; age alone tells them apart.
ABANDONED_AFTER = timedelta(hours=24)
_BATCH = 500
_MOST_ORPHANS = 10_000
# A few strays are normal; a store full of unknown objects belongs to somebody else.
_STRAYS_ALLOWED = 100


@dataclass(frozen=True)
class Swept:
    """What one sweep freed: blobs no file refers to, objects no row knows, half-written uploads."""

    blobs: Cleared
    orphans: Cleared
    drafts: Cleared

    @property
    def bytes_freed(self) -> int:
        """Bytes freed in all."""
        return (self.blobs + self.orphans + self.drafts).size_bytes


def sweep(*, grace: timedelta = GRACE) -> Swept:
    """Free blobs that no file has referred to for longer than `grace`, and abandoned uploads.

    Idempotent, safe to run beside itself and beside uploads, and safe to kill at any point: the
    next sweep goes on. Raises Unavailable when the store does not answer.
    """
    store = blob_store()
    abandoned = clock.now() - ABANDONED_AFTER
    swept = Swept(
        blobs=_free_blobs(store, clock.now() - grace),
        orphans=_free_orphans(store, abandoned),
        drafts=store.clear_drafts(before=abandoned),
    )
    log.info(
        "storage_swept",
        blobs=swept.blobs.count,
        orphans=swept.orphans.count,
        drafts=swept.drafts.count,
        bytes_freed=swept.bytes_freed,
    )
    return swept


def _free_blobs(store: BlobStore, before: datetime) -> Cleared:
    current = Blob.objects.current()
    current.filter(unreferenced_since__isnull=False).referenced().update(unreferenced_since=None)
    current.filter(unreferenced_since__isnull=True).unreferenced().update(
        unreferenced_since=clock.now()
    )
    for blob_id in current.filter(unreferenced_since__lt=before).values_list("pk", flat=True):
        Blob.objects.condemn(blob_id, unreferenced_before=before)
    cleared = Cleared()
    for blob in Blob.objects.filter(condemned_at__isnull=False):
        cleared += Cleared(1, store.delete(blob.key))
        blob.delete()
    return cleared


def _free_orphans(store: BlobStore, before: datetime) -> Cleared:
    """Remove objects that no blob names: uploads killed before their commit, replaced bytes."""
    known = 0
    orphans: list[Entry] = []
    for batch in _batches(store.entries()):
        named = set(Blob.objects.filter(key__in=[one.key for one in batch]).values_list("key"))
        known += len(named)
        old = (one for one in batch if (one.key,) not in named and one.modified_at < before)
        orphans.extend(islice(old, _MOST_ORPHANS - len(orphans)))
    if len(orphans) > max(known, _STRAYS_ALLOWED):
        log.error("storage_not_ours", known=known, unknown=len(orphans))
        return Cleared()
    return sum((Cleared(1, store.delete(one.key)) for one in orphans), Cleared())


def _batches(entries: Iterator[Entry]) -> Iterator[list[Entry]]:
    while batch := list(islice(entries, _BATCH)):
        yield batch
