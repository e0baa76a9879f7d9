"""API keys of endpoints, with which clients request predictions."""

from datetime import datetime
from typing import ClassVar

from django.db import models
from django.db.models import Q

from portal.accounts.models import User
from portal.core.models import IdField, Row
from portal.endpoints.models.endpoints import Endpoint


class EndpointKeyQuerySet(models.QuerySet["EndpointKey"]):
    """Queries of keys."""

    def shown(self) -> "EndpointKeyQuerySet":
        """Keys that people created, without those of the portal itself."""
        return self.filter(sealed=b"")

    def usable(self, timestamp: datetime) -> "EndpointKeyQuerySet":
        """Keys that are neither revoked nor expired."""
        return self.filter(revoked_at__isnull=True).filter(
            Q(expires_at__isnull=True) | Q(expires_at__gt=timestamp)
        )


class EndpointKey(Row):
    """An API key. Its text is shown once and not stored.

    The portal's own short-lived keys are the exception: their text is `sealed` with the key that
    lives outside the database.
    """

    id = IdField("epk")
    endpoint = models.ForeignKey(Endpoint, on_delete=models.PROTECT, related_name="keys")
    name = models.CharField(max_length=100)
    sha256 = models.CharField(max_length=64, unique=True)
    prefix = models.CharField(max_length=16)
    sealed = models.BinaryField(default=bytes)
    scopes = models.JSONField(default=list)
    rate_per_s = models.FloatField(null=True, blank=True)
    burst = models.PositiveIntegerField(null=True, blank=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    made_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")

    objects: ClassVar[EndpointKeyQuerySet] = EndpointKeyQuerySet.as_manager()  # type: ignore[assignment]

    class Meta(Row.Meta):
        indexes: ClassVar[list[models.Index]] = [
            models.Index(
                fields=["endpoint"], condition=Q(revoked_at__isnull=True), name="key_in_force"
            ),
        ]
