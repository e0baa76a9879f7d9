"""Stored responses of requests with an Idempotency-Key."""

from typing import ClassVar

from django.db import models

from portal.core.models import IdField, Row


class IdempotencyRecord(Row):
    """The response to one keyed POST, written in the transaction of its change.

    The body is encrypted, because it may hold a secret that is shown only once.
    """

    id = IdField("idem")
    principal = models.CharField(max_length=32)
    key = models.CharField(max_length=128)
    fingerprint = models.CharField(max_length=64)
    status = models.PositiveSmallIntegerField(default=0)
    content_type = models.CharField(max_length=100, blank=True)
    body = models.BinaryField(default=b"")

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["principal", "key"], name="idempotency_once"),
        ]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["created_at"], name="idempotency_by_age"),
        ]
