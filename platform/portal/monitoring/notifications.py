"""Notifications about firing alerts of endpoints."""

from collections.abc import Iterable

from django.db.models import Count, Q

from portal.accounts.notifications import Audience, Listed, Notification, newest_of
from portal.core import clock
from portal.endpoints.lifecycle import EndpointState
from portal.endpoints.models import Endpoint
from portal.monitoring.models import Alert
from portal.monitoring.models.alerts import AlertQuerySet
from slipway.schemas.notifications import NotificationKind

_GONE = (EndpointState.DELETING, EndpointState.DELETED)


def open_alerts() -> AlertQuerySet:
    """Return firing alerts of existing endpoints that nobody has snoozed."""
    is_awake = Q(snoozed_until=None) | Q(snoozed_until__lte=clock.now())
    return Alert.objects.firing().filter(is_awake).exclude(endpoint__state__in=_GONE)


def open_alert_counts(endpoint_ids: Iterable[str]) -> dict[str, int]:
    """Return the number of open alerts of each endpoint that has any."""
    alerts = open_alerts().filter(endpoint__in=list(endpoint_ids)).order_by()
    return dict(
        alerts.values("endpoint").annotate(count=Count("pk")).values_list("endpoint", "count")
    )


def alert_notifications(audience: Audience) -> Listed:
    """Return the newest open alerts in the reader's projects."""
    alerts = open_alerts().filter(endpoint__project__in=list(audience.projects))
    return newest_of(alerts.select_related("endpoint__project"), _notification)


def endpoint_alerts(endpoint: Endpoint) -> Listed:
    """Return the newest open alerts of one endpoint."""
    alerts = open_alerts().filter(endpoint=endpoint)
    return newest_of(alerts.select_related("endpoint__project"), _notification)


def _notification(alert: Alert) -> Notification:
    endpoint = alert.endpoint
    return Notification(
        id=alert.pk,
        kind=NotificationKind.ALERT,
        project=endpoint.project,
        title=f"{endpoint.name}: {alert.kind.replace('_', ' ')}",
        reason=alert.reason,
        next_step="Open monitoring to see the cause. Roll back, retrain, or snooze the alert.",
        route="project_endpoint_monitoring",
        arguments=(endpoint.project.slug, endpoint.name),
        since=alert.created_at,
    )
