"""Wheels and source archives that environments are built from."""

from typing import ClassVar

from django.db import models

from portal.accounts.models import Project
from portal.core.models import IdField, Row
from portal.storage.models import StoredFile


class PackageArchive(Row):
    """An archive of packages of one project: `size_bytes` bytes from `start` of a code snapshot.

    Canonical requirements name it by `digest`, the SHA-256 of these bytes.
    """

    id = IdField("parc")
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+")
    digest = models.CharField(max_length=64)
    file_name = models.CharField(max_length=200)
    file = models.ForeignKey(StoredFile, on_delete=models.PROTECT, related_name="+")
    start = models.BigIntegerField()
    size_bytes = models.BigIntegerField()

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(
                fields=["project", "digest"], name="package_archive_once_a_project"
            ),
        ]
