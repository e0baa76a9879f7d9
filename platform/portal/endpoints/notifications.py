"""Notifications about endpoints that could not be deployed."""

from django.db.models import OuterRef, Subquery

from portal.accounts.notifications import Audience, Listed, Notification, newest_of
from portal.endpoints.lifecycle import EndpointState
from portal.endpoints.models import Endpoint, EndpointEvent
from slipway.schemas.notifications import NotificationKind


def endpoint_notifications(audience: Audience) -> Listed:
    """Return the failed endpoints in the reader's projects."""

    def notification(endpoint: Endpoint) -> Notification:
        project = audience.projects[endpoint.project_id]
        return Notification(
            id=endpoint.pk,
            kind=NotificationKind.ENDPOINT,
            project=project,
            title=f"{endpoint.name} is not serving",
            reason=endpoint.reason or "It could not be deployed.",
            next_step="Read the events on its page, then promote another version or delete it.",
            route="project_endpoint",
            arguments=(project.slug, endpoint.name),
            since=getattr(endpoint, "last_event_at", None) or endpoint.created_at,
        )

    events = EndpointEvent.objects.filter(endpoint=OuterRef("pk")).order_by("-pk")
    failed = Endpoint.objects.filter(
        project__in=list(audience.projects), state=EndpointState.FAILED
    ).annotate(last_event_at=Subquery(events.values("created_at")[:1]))
    return newest_of(failed, notification)
