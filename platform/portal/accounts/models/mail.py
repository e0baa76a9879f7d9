"""Outgoing mail: stored as a row first, then a task is enqueued."""

from typing import ClassVar

from django.db import models

from portal.core import clock
from portal.core.models import IdField, Row


class OutboxMailQuerySet(models.QuerySet["OutboxMail"]):
    """Queryset of outgoing mails."""

    def due(self) -> "OutboxMailQuerySet":
        """Mails not sent yet whose next attempt is due, oldest first."""
        return self.filter(sent_at__isnull=True, next_attempt_at__lte=clock.now()).order_by("pk")


class OutboxMail(Row):
    """One mail. A `next_attempt_at` in the future doubles as the claim of the sending process."""

    id = IdField("mail")
    to = models.EmailField(max_length=254)
    subject = models.CharField(max_length=200)
    body = models.TextField()
    attempts = models.PositiveIntegerField(default=0)
    next_attempt_at = models.DateTimeField(default=clock.now)
    sent_at = models.DateTimeField(null=True, blank=True)
    last_error = models.CharField(max_length=500, blank=True)

    objects: ClassVar[OutboxMailQuerySet] = OutboxMailQuerySet.as_manager()  # type: ignore[assignment]

    class Meta(Row.Meta):
        indexes: ClassVar[list[models.Index]] = [
            models.Index(
                fields=["next_attempt_at"],
                condition=models.Q(sent_at__isnull=True),
                name="mail_due",
            ),
        ]
