"""Spans in which predictions were not captured, or were answered by a standby."""

from datetime import datetime
from typing import ClassVar

from django.db import models
from django.db.models import Q

from portal.core.models import IdField, Row
from portal.endpoints.models.endpoints import Endpoint, EndpointEvent, Revision


class IncidentKind(models.TextChoices):
    """The kinds of incidents."""

    FALLBACK = "fallback"
    UNCAPTURED = "uncaptured"


class ServingIncidentQuerySet(models.QuerySet["ServingIncident"]):
    """Queries of incidents."""

    def open(self) -> "ServingIncidentQuerySet":
        """Incidents that have not ended."""
        return self.filter(ended_at__isnull=True)

    def uncaptured_since(self, since: datetime) -> "ServingIncidentQuerySet":
        """Incidents in which a prediction was lost since that time."""
        return self.filter(kind=IncidentKind.UNCAPTURED, last_at__gte=since)


class ServingIncident(Row):
    """One span of one revision, with the number of affected predictions.

    `event` is its event in the history of the endpoint. Its message is updated with the incident.
    """

    id = IdField("inc")
    endpoint = models.ForeignKey(Endpoint, on_delete=models.CASCADE, related_name="incidents")
    revision = models.ForeignKey(Revision, on_delete=models.CASCADE, related_name="+")
    event = models.OneToOneField(EndpointEvent, on_delete=models.CASCADE, related_name="+")
    kind = models.CharField(max_length=16, choices=IncidentKind.choices)
    predictions = models.BigIntegerField()
    reason = models.CharField(max_length=500, blank=True)
    began_at = models.DateTimeField()
    last_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)

    objects: ClassVar[ServingIncidentQuerySet] = ServingIncidentQuerySet.as_manager()  # type: ignore[assignment]

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.CheckConstraint(
                condition=Q(kind__in=IncidentKind.values), name="incident_known_kind"
            ),
            models.UniqueConstraint(
                fields=["revision", "kind"],
                condition=Q(ended_at__isnull=True),
                name="incident_one_at_a_time",
            ),
        ]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["endpoint", "ended_at"], name="incident_of_endpoint"),
            models.Index(fields=["kind", "last_at"], name="incident_by_age"),
        ]
