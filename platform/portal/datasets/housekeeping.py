"""Freeing what was deleted and can no longer be undone, and what was left half-sent."""

from dataclasses import dataclass
from datetime import timedelta

import structlog
from django.db import transaction
from django.db.models import Exists, OuterRef

from portal.core import clock
from portal.datasets.models import UNDO_WITHIN, DataTable, Entry, Piece, Version
from portal.storage.models import StoredFile
from slipway.schemas.datasets import VersionState

log = structlog.get_logger(__name__)
# A draft is deleted after this long without a change. Until then its upload can be resumed.
DRAFT_KEPT = timedelta(days=7)
# An unreferenced piece is retained for this long, for a draft that is about to name it again.
PIECE_KEPT = timedelta(hours=24)
_AT_ONCE = 500
_MOST_PIECES = 20_000


@dataclass(frozen=True)
class ReclaimedSpace:
    """Counts of one cleanup: versions deleted for good, and pieces with their bytes."""

    versions: int
    pieces: int
    size_bytes: int


def free_unused() -> ReclaimedSpace:
    """Purge versions past their undo and drafts given up, then pieces that nothing refers to.

    The bytes themselves are freed by the sweep of the storage, a day later. Idempotent, and safe to
    stop at any point.
    """
    versions = _purge_versions()
    pieces, size_bytes = _drop_pieces()
    if versions or pieces:
        log.info("datasets_freed", versions=versions, pieces=pieces, bytes_freed=size_bytes)
    return ReclaimedSpace(versions, pieces, size_bytes)


def _purge_versions() -> int:
    now = clock.now()
    due = (
        Version.objects.filter(state=VersionState.DELETED, deleted_at__lt=now - UNDO_WITHIN)
        | Version.objects.filter(
            state__in=[VersionState.DRAFT, VersionState.REFUSED], touched_at__lt=now - DRAFT_KEPT
        )
        | Version.objects.filter(dataset__deleted_at__lt=now - UNDO_WITHIN).exclude(
            state=VersionState.PURGED
        )
    )
    purged = 0
    for pk in list(due.values_list("pk", flat=True)[:_AT_ONCE]):
        purged += Version.objects.move(pk, VersionState.PURGED)
    for pk in _purged_with_entries():
        entries = Entry.objects.filter(version=pk)
        while some := list(entries.values_list("pk", flat=True)[:_AT_ONCE]):
            Entry.objects.filter(pk__in=some).delete()
        DataTable.objects.filter(version=pk).delete()
    return purged


def _purged_with_entries() -> list[str]:
    gone = Version.objects.filter(state=VersionState.PURGED)
    with_entries = gone.filter(Exists(Entry.objects.filter(version=OuterRef("pk"))))
    return list(with_entries.values_list("pk", flat=True)[:_AT_ONCE])


def _drop_pieces() -> tuple[int, int]:
    """Delete pieces no version has. A stored file goes with the last piece in it."""
    old = Piece.objects.unused().filter(used_at__lt=clock.now() - PIECE_KEPT)
    count = size_bytes = 0
    while count < _MOST_PIECES:
        with transaction.atomic():
            # With the lock the database checks again: a draft may have named one concurrently.
            pieces = list(old.order_by("pk").select_for_update()[:_AT_ONCE])
            if not pieces:
                break
            Piece.objects.filter(pk__in=[piece.pk for piece in pieces]).delete()
            files = {piece.file_id for piece in pieces if piece.file_id}
            still = Piece.objects.filter(file=OuterRef("pk"))
            StoredFile.objects.filter(pk__in=files).filter(~Exists(still)).delete()
        count += len(pieces)
        size_bytes += sum(piece.size_bytes for piece in pieces if piece.file_id)
    return count, size_bytes
