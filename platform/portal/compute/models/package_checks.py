"""Known vulnerabilities of exact versions of packages."""

from typing import ClassVar

from django.db import models

from portal.core.models import IdField, Row


class PackageCheck(Row):
    """Answer of the vulnerability database about one version of a package of the public index.

    `advisories` are those that apply. `checked_at` is null before the first answer. After a failed
    attempt, `problem` has the reason, and the next one is due at `retry_at`.
    """

    id = IdField("pchk")
    name = models.CharField(max_length=200)
    version = models.CharField(max_length=100)
    advisories = models.JSONField(default=list, blank=True)
    checked_at = models.DateTimeField(null=True, blank=True)
    problem = models.CharField(max_length=300, blank=True, default="")
    failures = models.PositiveIntegerField(default=0)
    retry_at = models.DateTimeField(null=True, blank=True)

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["name", "version"], name="package_check_once"),
        ]

    def __str__(self) -> str:
        return f"{self.name} {self.version}"
