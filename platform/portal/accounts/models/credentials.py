"""API tokens and project secrets."""

from datetime import timedelta
from typing import ClassVar

from django.db import models
from django.db.models import Q

from portal.accounts.models.people import User
from portal.accounts.models.tenancy import Project
from portal.core import clock
from portal.core.models import IdField, Row

_LAST_USED_EVERY = timedelta(minutes=1)


class ApiTokenQuerySet(models.QuerySet["ApiToken"]):
    """Queryset of API tokens."""

    def usable(self) -> "ApiTokenQuerySet":
        """Tokens that are neither revoked nor expired and whose person is active."""
        return self.filter(
            Q(expires_at__isnull=True) | Q(expires_at__gt=clock.now()),
            revoked_at__isnull=True,
            user__is_active=True,
        )


class ApiToken(Row):
    """A bearer token. The secret is shown once, and only its SHA-256 is stored.

    A token is a random 240-bit value, so a fast hash is enough: there is no dictionary to try.
    `created_by` is the person who made a token of a service account, None for one's own.
    """

    id = IdField("tok")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="tokens")
    created_by = models.ForeignKey(
        User, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    name = models.CharField(max_length=100)
    prefix = models.CharField(max_length=16)
    token_hash = models.CharField(max_length=64, unique=True)
    scopes = models.JSONField(default=list)
    project = models.ForeignKey(
        Project, null=True, blank=True, on_delete=models.CASCADE, related_name="+"
    )
    expires_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    objects: ClassVar[ApiTokenQuerySet] = ApiTokenQuerySet.as_manager()  # type: ignore[assignment]

    def mark_used(self) -> None:
        """Record the use, at most once a minute, so that most reads write nothing."""
        timestamp = clock.now()
        if self.last_used_at is None or timestamp - self.last_used_at > _LAST_USED_EVERY:
            ApiToken.objects.filter(pk=self.pk).update(last_used_at=timestamp)


class ProjectSecret(Row):
    """A secret for user code of the project, encrypted with a key outside the database."""

    id = IdField("sec")
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="secrets")
    name = models.CharField(max_length=64)
    ciphertext = models.BinaryField()
    updated_at = models.DateTimeField()
    updated_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["project", "name"], name="secret_once_a_project"),
        ]
