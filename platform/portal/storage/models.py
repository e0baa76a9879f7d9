"""Blobs, each stored once, and the files of projects that refer to them."""

from datetime import datetime
from typing import ClassVar

from django.db import models
from django.db.models import Exists, OuterRef, Q

from portal.accounts.models import Project, User
from portal.accounts.principal import Principal
from portal.core import clock
from portal.core.errors import Conflict
from portal.core.models import IdField, Row
from portal.storage.ports import StoredBytes

_CLAIM_ATTEMPTS = 5


class BlobQuerySet(models.QuerySet["Blob"]):
    """Queryset of blobs. A move is one guarded UPDATE, so an upload and the sweep never collide."""

    def current(self) -> "BlobQuerySet":
        """Blobs that files may refer to."""
        return self.filter(condemned_at__isnull=True)

    def referenced(self) -> "BlobQuerySet":
        """Blobs some file refers to."""
        return self.filter(Exists(StoredFile.objects.filter(blob=OuterRef("pk"))))

    def unreferenced(self) -> "BlobQuerySet":
        """Blobs no file refers to."""
        return self.filter(~Exists(StoredFile.objects.filter(blob=OuterRef("pk"))))

    def claim(self, stored: StoredBytes) -> "Blob":
        """Return the blob of these bytes, safe from the sweep until the transaction ends.

        Call it in the transaction that adds the file. If the blob is stored under an older key, the
        bytes just stored are spare. A damaged blob takes the new bytes in place of its own.
        """
        same = self.current().filter(sha256=stored.sha256)
        for _ in range(_CLAIM_ATTEMPTS):
            fresh = Blob(sha256=stored.sha256, size_bytes=stored.size_bytes, key=stored.key)
            self.bulk_create([fresh], ignore_conflicts=True)
            same.filter(damaged_at__isnull=False).update(key=stored.key, damaged_at=None)
            # Takes the row's lock. No row means that the sweep has just condemned it.
            if same.update(unreferenced_since=None):
                return same.get()
        raise Conflict(
            "The same content was being deleted while it was uploaded.",
            next_step="Send the file again.",
        )

    def condemn(self, blob_id: str, *, unreferenced_before: datetime) -> bool:
        """Withdraw a blob from uploads for good. Return False when it is in use again."""
        idle = self.current().filter(pk=blob_id, unreferenced_since__lt=unreferenced_before)
        return bool(idle.unreferenced().update(condemned_at=clock.now()))


class Blob(Row):
    """Bytes stored under `key`, at most one current row for each digest.

    in use ⇄ unreferenced → condemned → row gone. `damaged_at` is the time when a reader found other
    bytes than were stored, or none.
    """

    id = IdField("blob")
    sha256 = models.CharField(max_length=64)
    size_bytes = models.BigIntegerField()
    key = models.CharField(max_length=100, unique=True)
    unreferenced_since = models.DateTimeField(null=True, blank=True)
    condemned_at = models.DateTimeField(null=True, blank=True)
    damaged_at = models.DateTimeField(null=True, blank=True)

    objects: ClassVar[BlobQuerySet] = BlobQuerySet.as_manager()  # type: ignore[assignment]

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(
                fields=["sha256"],
                condition=Q(condemned_at__isnull=True),
                name="blob_once_a_digest",
            ),
            models.CheckConstraint(condition=Q(size_bytes__gte=0), name="blob_size_not_negative"),
        ]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(
                fields=["unreferenced_since"],
                condition=Q(unreferenced_since__isnull=False),
                name="blob_idle",
            ),
        ]


class StoredFileQuerySet(models.QuerySet["StoredFile"]):
    """Queryset of files."""

    def visible_to(self, principal: Principal) -> "StoredFileQuerySet":
        """Files of the visible projects that are not archived."""
        return self.filter(project__in=principal.projects().live())

    def matching(self, text: str) -> "StoredFileQuerySet":
        """Return files whose name contains `text` in any case, or all for an empty text."""
        return self.filter(name__icontains=text) if text else self


class StoredFile(Row):
    """A file of a project: a name and a reference to bytes.

    Two projects with the same bytes share one blob without being able to detect it: each sends the
    bytes itself, each sees only its own files, and deleting one discloses nothing of the other.
    """

    id = IdField("file")
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+")
    blob = models.ForeignKey(Blob, on_delete=models.PROTECT, related_name="+")
    name = models.CharField(max_length=255)
    created_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")

    objects: ClassVar[StoredFileQuerySet] = StoredFileQuerySet.as_manager()  # type: ignore[assignment]

    class Meta(Row.Meta):
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["project", "-id"], name="file_by_project"),
        ]

    def __str__(self) -> str:
        return self.name
