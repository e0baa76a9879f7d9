"""Daily counts of predictions of an endpoint, retained after its minutes are deleted."""

from datetime import datetime
from typing import ClassVar

from django.db import models
from django.db.models import F

from portal.endpoints.models.endpoints import Endpoint


class AnsweredDayQuerySet(models.QuerySet["AnsweredDay"]):
    """Queries of daily counts."""

    def add(self, endpoint_id: str, at: datetime, answered: int) -> None:
        """Add to the count of a day. Call it in the transaction that adds to the other counters."""
        day, _ = self.get_or_create(endpoint_id=endpoint_id, day=at.date())
        self.filter(pk=day.pk).update(answered=F("answered") + answered)


class AnsweredDay(models.Model):
    """Number of predictions that an endpoint answered on a day, in UTC."""

    endpoint = models.ForeignKey(Endpoint, on_delete=models.CASCADE, related_name="+")
    day = models.DateField()
    answered = models.BigIntegerField(default=0)

    objects: ClassVar[AnsweredDayQuerySet] = AnsweredDayQuerySet.as_manager()  # type: ignore[assignment]

    class Meta:
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["endpoint", "day"], name="answered_once_a_day"),
        ]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["day"], name="answered_by_day"),
        ]
