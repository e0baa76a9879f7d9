"""Freeing notebooks whose deletion can no longer be taken back."""

import structlog
from django.db import transaction
from django.db.models import Exists, OuterRef, Q

from portal.core import clock
from portal.notebooks.models import (
    UNDO_WITHIN,
    Content,
    NotebookFile,
    NotebookRun,
    NotebookVersion,
)
from portal.storage.models import StoredFile

log = structlog.get_logger(__name__)
_AT_ONCE = 500


def free_deleted() -> tuple[int, int]:
    """Remove deleted notebooks, then contents that no version has. Returns both counts.

    Bytes are freed by the sweep of the storage, later. Idempotent, and safe to stop at any point.
    """
    due = NotebookFile.objects.filter(deleted_at__lt=clock.now() - UNDO_WITHIN)
    files = sum(_remove(pk) for pk in list(due.values_list("pk", flat=True)[:_AT_ONCE]))
    contents = _drop_contents()
    if files or contents:
        log.info("notebooks_freed", notebooks=files, contents=contents)
    return files, contents


def _remove(pk: str) -> bool:
    """Remove a notebook. Its runs and branches stay, without a reference to it."""
    with transaction.atomic():
        files = NotebookFile.objects.select_for_update().filter(pk=pk, deleted_at__isnull=False)
        if not files.exists():
            return False
        NotebookRun.objects.filter(version__file=pk).update(version=None)
        NotebookVersion.objects.filter(origin_version__file=pk).update(origin_version=None)
        files.delete()
    return True


def _drop_contents() -> int:
    its_source = NotebookVersion.objects.filter(source=OuterRef("pk"))
    its_outputs = NotebookVersion.objects.filter(outputs=OuterRef("pk"))
    unused = Content.objects.filter(~Exists(its_source), ~Exists(its_outputs))
    return sum(_delete_if_unused(pk) for pk in list(unused.values_list("pk", flat=True)[:_AT_ONCE]))


def _delete_if_unused(pk: str) -> bool:
    with transaction.atomic():
        content = Content.objects.select_for_update().filter(pk=pk).first()
        # Check again under the lock: a concurrent save may have referenced it.
        has_it = NotebookVersion.objects.filter(Q(source=pk) | Q(outputs=pk))
        if content is None or has_it.exists():
            return False
        content.delete()
        StoredFile.objects.filter(pk=content.file_id).delete()
    return True
