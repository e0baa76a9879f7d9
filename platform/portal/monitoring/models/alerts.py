"""Alerts, their channels, and their deliveries."""

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
    """Queries of alerts. A move is one guarded UPDATE: the loser of a race gets False."""

    def firing(self) -> "AlertQuerySet":
        """Alerts whose reason still holds."""
        return self.filter(state=AlertState.FIRING)

    def move(self, pk: str, target: AlertState, **changes: object) -> bool:
        """Move one alert to `target` from a state that allows it."""
        row = self.filter(pk=pk, state__in=sources_of(target))
        return bool(row.update(state=target, **changes))


class Alert(Row):
    """A problem of an endpoint. `kind` and `subject` identify it, `reason` is a sentence.

    At most one fires for a kind and subject of a revision. It is renewed when seen again.
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
    """Receiver of the alerts of an endpoint: the address of a member, or a webhook.

    `secret` holds the URL of a webhook and the key that signs requests, encrypted.
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
        """Number of alerts that were not delivered to this channel and will not be retried."""
        deliveries = AlertDelivery.objects.filter(channel=self).exclude(last_error="")
        given_up = Q(attempts__gte=MAX_ATTEMPTS) | Q(sent_at__isnull=False)
        return deliveries.filter(given_up).count()


class AlertDelivery(Row):
    """Delivery of one alert to one channel.

    `next_attempt_at` in the future is also the claim of the process that sends it.
    """

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
