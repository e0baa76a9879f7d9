"""Records spans of uncaptured predictions and of answers by a standby, with one event each.

Gateways report counters every two seconds. The first report with an increase opens an incident,
later ones raise its count, and some seconds without an increase end it. The caller has to hold the
lock of the endpoint.
"""

from datetime import UTC, datetime, timedelta

from django.db.models import F, Q, QuerySet, Sum

from portal.accounts.signals import send_accounts_changed
from portal.core import clock
from portal.endpoints.models import Endpoint, EndpointEvent, Revision, ServingIncident
from portal.endpoints.models.incidents import IncidentKind
from portal.endpoints.transitions import add_event
from slipway.schemas.truncation import shorten

_ENDS_AFTER = timedelta(seconds=10)
_RECENT = timedelta(hours=1)
_KEPT = timedelta(days=30)
_UNKNOWN_REASON = "the gateway could not write its capture log"


def note_incidents(
    *, revision: Revision, fallback: int, uncaptured: int, reason: str, since: datetime
) -> None:
    """Add the counts that a gateway reported for a revision between `since` and now."""
    for kind, count in ((IncidentKind.FALLBACK, fallback), (IncidentKind.UNCAPTURED, uncaptured)):
        if count:
            _note(revision, kind, count, reason, since)


def _note(revision: Revision, kind: IncidentKind, count: int, reason: str, since: datetime) -> None:
    now = clock.now()
    known = ServingIncident.objects.open().filter(revision=revision, kind=kind)
    incident = known.select_related("event").first()
    if incident is None:
        incident = ServingIncident(
            endpoint=revision.endpoint,
            revision=revision,
            kind=kind,
            predictions=count,
            reason=reason,
            began_at=since,
            last_at=now,
        )
        incident.event = add_event(revision.endpoint, kind.value, _sentence(incident))
        incident.save()
        return
    known.update(
        predictions=F("predictions") + count, last_at=now, reason=reason or incident.reason
    )
    incident.refresh_from_db()
    _rewrite(incident)


def end_incidents(endpoint: Endpoint, now: datetime) -> None:
    """End incidents without an increase for some seconds, and add the span to their events."""
    over = ServingIncident.objects.open().filter(endpoint=endpoint, last_at__lt=now - _ENDS_AFTER)
    for incident in over.select_related("revision", "endpoint"):
        if over.filter(pk=incident.pk).update(ended_at=F("last_at")):
            incident.ended_at = incident.last_at
            _rewrite(incident)


def forget_incidents(now: datetime) -> None:
    """Delete old incidents. Their events stay."""
    ServingIncident.objects.filter(ended_at__lt=now - _KEPT).delete()


def recent_incidents(endpoint: Endpoint, within: timedelta = _RECENT) -> QuerySet[ServingIncident]:
    """Return the incidents that are open or ended `within` that time, newest first."""
    recent = Q(ended_at__isnull=True) | Q(ended_at__gte=clock.now() - within)
    incidents = ServingIncident.objects.filter(recent, endpoint=endpoint)
    return incidents.select_related("event", "revision").order_by("-pk")


def capture_problem() -> str:
    """Describe predictions of the last hour that were not captured, without naming endpoints."""
    lost = ServingIncident.objects.uncaptured_since(clock.now() - _RECENT)
    newest = lost.order_by("-last_at").first()
    if newest is None:
        return ""
    count = lost.aggregate(all=Sum("predictions"))["all"]
    return (
        f"{_predictions(count)} served but not captured, the last at {_clock(newest.last_at)} "
        f"UTC: {newest.reason or _UNKNOWN_REASON}. They are missing from monitoring. An "
        "administrator must free space on the gateway's disk."
    )


def _rewrite(incident: ServingIncident) -> None:
    message = shorten(_sentence(incident), 2000)
    EndpointEvent.objects.filter(pk=incident.event_id).update(message=message)
    send_accounts_changed(incident.endpoint.project_id, "endpoints")


def _sentence(incident: ServingIncident) -> str:
    revision = incident.revision
    span = f"since {_day(incident.began_at)} UTC"
    if incident.ended_at is not None:
        span = f"between {_day(incident.began_at)} and {_clock(incident.ended_at)} UTC"
    if incident.kind == IncidentKind.UNCAPTURED:
        return (
            f"{_predictions(incident.predictions)} served by revision {revision.number} but not "
            f"captured {span}: {incident.reason or _UNKNOWN_REASON}. They are missing from "
            "monitoring."
        )
    return (
        f"{_predictions(incident.predictions)} served {span} by revision {revision.number} "
        f"({revision.model} {revision.model_version}), a standby, because no revision with "
        "traffic had a ready replica."
    )


def _predictions(count: int) -> str:
    return "1 prediction was" if count == 1 else f"{count:,} predictions were"


def _day(timestamp: datetime) -> str:
    return f"{timestamp.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def _clock(timestamp: datetime) -> str:
    return f"{timestamp.astimezone(UTC):%H:%M:%S}"
