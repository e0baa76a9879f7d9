"""Alerts, where they are told, and what is still to be told."""

from typing import ClassVar

from django.db import models
from django.db.models import Q

from portal.accounts.models import User
from portal.core import clock
from portal.core.models import IdField, Row
from portal.endpoints.models import Endpoint
from portal.monitoring.lifecycle import AlertState, sources_of

# Attempts to deliver an alert, over about five hours.
MAX_ATTEMPTS = 12
_STATES = [state.value for state in AlertState]


class AlertQuerySet(models.QuerySet["Alert"]):
    """Verbs on alerts. A move is one guarded UPDATE; who loses the race is told by False."""

    def firing(self) -> "AlertQuerySet":
        """Alerts whose reason stands."""
        return self.filter(state=AlertState.FIRING)

    def move(self, pk: str, target: AlertState, **changes: object) -> bool:
        """Move one alert to `target` from a state that allows it."""
        row = self.filter(pk=pk, state__in=sources_of(target))
        return bool(row.update(state=target, **changes))


class Alert(Row):
    """Something is wrong with an endpoint. `kind` and `subject` say what, `reason` in a sentence.

    There is one at a time for a kind and subject of a revision; seen again, it is renewed.
    """

    id = IdField("alert")
    endpoint = models.ForeignKey(Endpoint, on_delete=models.CASCADE, related_name="+")
    kind = models.CharField(max_length=24)
    subject = models.CharField(max_length=250, blank=True)
    revision_id = models.CharField(max_length=32, blank=True)
    state = models.CharField(max_length=10, default=AlertState.FIRING)
    reason = models.CharField(max_length=1000)
    seen_at = models.DateTimeField(default=clock.now)
    snoozed_until = models.DateTimeField(null=True, blank=True)
    resolved_at = models.DateTimeField(null=True, blank=True)

    objects: ClassVar[AlertQuerySet] = AlertQuerySet.as_manager()  # type: ignore[assignment]

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.CheckConstraint(condition=Q(state__in=_STATES), name="alert_known_state"),
            models.UniqueConstraint(
                fields=["endpoint", "kind", "subject", "revision_id"],
                condition=Q(state=AlertState.FIRING),
                name="alert_one_at_a_time",
            ),
        ]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["endpoint", "state"], name="alert_by_state"),
        ]


class AlertChannel(Row):
    """Where alerts of an endpoint are told: an address of a member, or a webhook.

    `secret` signs what a webhook is sent, encrypted.
    """

    id = IdField("chan")
    endpoint = models.ForeignKey(Endpoint, on_delete=models.CASCADE, related_name="+")
    kind = models.CharField(max_length=10)
    target = models.CharField(max_length=2000)
    secret = models.BinaryField(default=b"")
    made_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    last_error = models.CharField(max_length=500, blank=True)

    @property
    def undelivered(self) -> int:
        """Alerts that were not delivered here and will not be."""
        deliveries = AlertDelivery.objects.filter(channel=self).exclude(last_error="")
        given_up = Q(attempts__gte=MAX_ATTEMPTS) | Q(sent_at__isnull=False)
        return deliveries.filter(given_up).count()


class AlertDelivery(Row):
    """One telling of one alert. `next_attempt_at` in the future is also the claim of who sends."""

    id = IdField("tell")
    alert = models.ForeignKey(Alert, on_delete=models.CASCADE, related_name="+")
    channel = models.ForeignKey(AlertChannel, on_delete=models.CASCADE, related_name="+")
    news = models.CharField(max_length=10)
    attempts = models.PositiveIntegerField(default=0)
    next_attempt_at = models.DateTimeField(default=clock.now)
    sent_at = models.DateTimeField(null=True, blank=True)
    last_error = models.CharField(max_length=500, blank=True)

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(
                fields=["alert", "channel", "news"], name="delivery_once_a_news"
            ),
        ]
