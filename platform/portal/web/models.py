"""Events for open pages, and first steps of people."""

from datetime import timedelta
from typing import ClassVar

from django.db import models

from portal.accounts.models import User
from portal.core import clock
from portal.core.ids import ID_MAX_LENGTH
from portal.core.models import IdField, Row

KEPT = timedelta(minutes=10)


class LiveEventQuerySet(models.QuerySet["LiveEvent"]):
    """Verbs on live events."""

    def expired(self) -> "LiveEventQuerySet":
        """Events too old for any page to ask for."""
        return self.filter(at__lt=clock.now() - KEPT)


class LiveEvent(models.Model):
    """Something of `topic` (the id of a project, team or person) has changed: `what`.

    It carries no content: a notified page requests its content again, under its own policy.
    """

    id = models.BigAutoField(primary_key=True)
    topic = models.CharField(max_length=ID_MAX_LENGTH)
    what = models.CharField(max_length=32)
    at = models.DateTimeField(default=clock.now, editable=False)

    objects: ClassVar[LiveEventQuerySet] = LiveEventQuerySet.as_manager()  # type: ignore[assignment]

    class Meta:
        ordering: ClassVar[list[str]] = ["pk"]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["at"], name="live_by_age"),
            models.Index(fields=["topic", "id"], name="live_by_topic"),
        ]


class FirstSteps(Row):
    """First steps of a person on Home. `done` has the keys of steps that were seen done."""

    id = IdField("fst")
    user = models.OneToOneField(User, on_delete=models.CASCADE, related_name="+")
    done = models.JSONField(default=list)
    hidden = models.BooleanField(default=False)
