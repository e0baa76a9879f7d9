"""Deleting notebooks with their versions, and taking that back for three days."""

from django.db import IntegrityError, transaction

from portal.accounts import audit
from portal.core import clock
from portal.core.errors import Conflict, NotFound
from portal.notebooks.models import UNDO_WITHIN, NotebookFile


def delete_notebook(*, file: NotebookFile) -> None:
    """Hide a notebook with all its versions. Raises NotFound if it is deleted already.

    Jobs that run it go on, and what they made stays. A save at its path begins another notebook.
    """
    with transaction.atomic():
        files = NotebookFile.objects.current().filter(pk=file.pk)
        if not files.update(deleted_at=clock.now()):
            raise NotFound
        _record("notebook.file_delete", file)


def undelete_notebook(*, file: NotebookFile) -> NotebookFile:
    """Undo a deletion. Raises Conflict when it is too late, or the path is taken by now."""
    if file.deleted_at is None:
        return file
    if file.deleted_at < clock.now() - UNDO_WITHIN:
        raise Conflict(
            f"It was deleted more than {UNDO_WITHIN.days} days ago.",
            code="too_late",
            next_step="Save the notebook again.",
        )
    with transaction.atomic():
        try:
            with transaction.atomic():
                NotebookFile.objects.filter(pk=file.pk).update(deleted_at=None)
        except IntegrityError as error:
            raise Conflict(
                f"A new notebook {file.path} exists.",
                code="path_taken",
                next_step="Delete the new one first.",
            ) from error
        _record("notebook.file_undelete", file)
    file.deleted_at = None
    return file


def _record(verb: str, file: NotebookFile) -> None:
    audit.record(
        verb,
        kind="notebook",
        target=file,
        label=file.path,
        project=file.project,
        after={"versions": file.head},
    )
