"""Evaluates measurements: alerts are raised once, renewed while they hold, then resolved.

Only the database is read: windows, summaries and traffic are rows.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

from django.db import IntegrityError, transaction

from portal.accounts import audit
from portal.core import clock
from portal.endpoints.incidents import recent_incidents
from portal.endpoints.lifecycle import EndpointState, RevisionState
from portal.endpoints.models import Endpoint, Revision, ServingIncident
from portal.endpoints.models.incidents import IncidentKind
from portal.endpoints.services.traffic import traffic_of
from portal.monitoring.label_basis import quality_of, stored_basis
from portal.monitoring.lifecycle import AlertState
from portal.monitoring.models import (
    Alert,
    AlertChannel,
    AlertDelivery,
    DriftWindow,
    HourSummary,
    Monitor,
)
from portal.monitoring.monitor_settings import settings_of
from portal.monitoring.statistics import quality
from slipway.schemas.monitoring import MonitorSettings
from slipway.schemas.percent import percent
from slipway.schemas.truncation import shorten

ENOUGH = 200
_LOOKS_BACK = timedelta(hours=24)
_MINUTES = 15
_ENOUGH_FOR_ERRORS = 20
_SHOWN = 5
DRIFT, OUTPUTS, QUALITY, ERRORS, LATENCY = "drift", "output_drift", "quality", "errors", "latency"
NOT_CAPTURED, STANDBY = "not_captured", "standby_answers"
_INCIDENT_ALERTS = {IncidentKind.UNCAPTURED: NOT_CAPTURED, IncidentKind.FALLBACK: STANDBY}


@dataclass(frozen=True)
class AlertReason:
    """A reason for an alert."""

    kind: str
    reason: str
    revision_id: str = ""
    subject: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        """Identity of the alert: findings with the same key are one alert."""
        return self.kind, self.subject, self.revision_id


def update_alerts(endpoint: Endpoint) -> None:
    """Raise, renew and resolve the alerts of an endpoint."""
    chosen = settings_of(endpoint)
    serving = list(endpoint.revisions.filter(state=RevisionState.SERVING).defer("served"))
    alert_reasons = list(_findings(endpoint, serving, chosen))
    firing = {
        (alert.kind, alert.subject, alert.revision_id): alert
        for alert in Alert.objects.firing().filter(endpoint=endpoint)
    }
    for finding in alert_reasons:
        known = firing.pop(finding.key, None)
        if known is None:
            raise_alert(endpoint, finding)
        else:
            Alert.objects.firing().filter(pk=known.pk).update(
                reason=shorten(finding.reason, 1000), seen_at=clock.now()
            )
    for gone in firing.values():
        _resolve(endpoint, gone)


def _findings(
    endpoint: Endpoint, serving: Iterable[Revision], chosen: MonitorSettings
) -> Iterable[AlertReason]:
    for revision in serving:
        yield from _drift(endpoint, revision, chosen)
        if chosen.watch_quality:
            yield from quality_alerts(endpoint, revision, chosen)
    yield from _incidents(endpoint)
    if endpoint.status == EndpointState.SERVING:
        yield from _traffic(endpoint, chosen)


def _incidents(endpoint: Endpoint) -> Iterable[AlertReason]:
    """Yield lost captures and answers of a standby. An alert outlasts pauses between incidents."""
    newest: dict[tuple[str, str], ServingIncident] = {}
    for incident in recent_incidents(endpoint, within=timedelta(minutes=_MINUTES)):
        newest.setdefault((incident.kind, incident.revision_id), incident)
    for (kind, revision_id), incident in newest.items():
        yield AlertReason(_INCIDENT_ALERTS[IncidentKind(kind)], incident.event.message, revision_id)


def _drift(
    endpoint: Endpoint, revision: Revision, chosen: MonitorSettings
) -> Iterable[AlertReason]:
    last = _last_window(endpoint, revision.pk)
    if last is None or not last.drifted:
        return
    for kind, is_watched, prefix, noun in (
        (DRIFT, chosen.watch_drift, "in.", "input"),
        (OUTPUTS, chosen.watch_outputs, "out.", "output"),
    ):
        names = [name for name in last.drifted if name.startswith(prefix)]
        if not is_watched or not names:
            continue
        worst = [feature for feature in last.features if feature["name"] in names]
        worst.sort(key=lambda item: -item["share"])
        shown = ", ".join(
            f"{feature['name'].removeprefix(prefix)} "
            f"(total variation {100 * feature['share']:.0f} %)"
            for feature in worst[:_SHOWN]
        )
        more = f" and {len(worst) - _SHOWN} more" if len(worst) > _SHOWN else ""
        subject = f"{noun} differs" if len(names) == 1 else f"{noun}s differ"
        yield AlertReason(
            kind,
            f"{len(names)} {subject} from the baseline in two windows in a row: "
            f"{shown}{more}. The last window has {last.rows:,} rows.",
            revision.pk,
        )


def _last_window(endpoint: Endpoint, revision_id: str) -> DriftWindow | None:
    drift_windows = DriftWindow.objects.filter(endpoint=endpoint, revision_id=revision_id)
    return drift_windows.order_by("-ends_at").first()


def quality_alerts(
    endpoint: Endpoint, revision: Revision, chosen: MonitorSettings
) -> Iterable[AlertReason]:
    """Yield quality problems of the last 24 hours that have labels."""
    labelled = HourSummary.objects.filter(
        endpoint=endpoint, revision_id=revision.pk, labelled__gt=0
    ).order_by("-hour")
    newest = labelled.first()
    if newest is None:
        return
    hours = list(labelled.filter(hour__gt=newest.hour - _LOOKS_BACK))
    monitor = Monitor.objects.filter(endpoint=endpoint).first() or Monitor(endpoint=endpoint)
    sums = quality_of(hours, stored_basis(monitor))
    if sums is None or sums["n"] < ENOUGH:
        return
    figures = quality.figures(sums)
    words = f"of {sums['n']:,} labelled predictions"
    if "accuracy" in figures:
        accuracy = figures["accuracy"]
        if chosen.min_accuracy is not None and accuracy < chosen.min_accuracy:
            yield AlertReason(
                QUALITY,
                f"Measured accuracy is {percent(accuracy)} {words}; at least "
                f"{percent(chosen.min_accuracy)} is required.",
                revision.pk,
            )
            return
        expected = estimate_of(hours)
        spread = 2.6 * (accuracy * (1 - accuracy) / sums["n"]) ** 0.5
        if expected is not None and accuracy + spread < expected[1]:
            yield AlertReason(
                QUALITY,
                f"Measured accuracy is {percent(accuracy)} {words}, below the range of the "
                f"estimate ({percent(expected[1])} to {percent(expected[2])}): possible concept "
                "drift.",
                revision.pk,
            )
    elif chosen.max_mean_error is not None and figures.get("mae", 0) > chosen.max_mean_error:
        yield AlertReason(
            QUALITY,
            f"The mean absolute error is {figures['mae']:.4g} {words}; at most "
            f"{chosen.max_mean_error:.4g} is allowed.",
            revision.pk,
        )


def estimate_of(hours: Iterable[HourSummary]) -> tuple[float, float, float] | None:
    """Return the estimated accuracy of several hours and its range."""
    estimates = [hour_summary.estimate for hour_summary in hours if hour_summary.estimate]
    total = sum(hour_summary["n"] for hour_summary in estimates)
    if not total:
        return None
    value = sum(hour_summary["accuracy"] * hour_summary["n"] for hour_summary in estimates) / total
    # Ranges of independent hours: their squares add up.
    spread = (
        sum(
            ((hour_summary["high"] - hour_summary["low"]) / 2 * hour_summary["n"] / total) ** 2
            for hour_summary in estimates
        )
        ** 0.5
    )
    return value, max(0.0, value - spread), min(1.0, value + spread)


def _traffic(endpoint: Endpoint, chosen: MonitorSettings) -> Iterable[AlertReason]:
    minutes = traffic_of(endpoint=endpoint, minutes=_MINUTES)
    answered = sum(minute.answered for minute in minutes)
    failed = sum(minute.failed for minute in minutes)
    total = answered + failed
    if total < _ENOUGH_FOR_ERRORS:
        return
    percent = 100 * failed / total
    if chosen.max_error_percent is not None and percent > chosen.max_error_percent:
        yield AlertReason(
            ERRORS,
            f"{failed} of {total} predictions of the last {_MINUTES} minutes failed "
            f"({percent:.1f} %); at most {chosen.max_error_percent:g} % is allowed.",
        )
    if chosen.max_p95_ms is None:
        return
    whole = minutes[0]
    for minute in minutes[1:]:
        for place, count in enumerate(minute.counts):
            whole.counts[place] += count
    slow = whole.percentile_ms(95)
    if slow is not None and slow > chosen.max_p95_ms:
        yield AlertReason(
            LATENCY,
            f"One prediction in twenty took longer than {slow:.0f} ms in the last {_MINUTES} "
            f"minutes; at most {chosen.max_p95_ms:g} ms is required.",
        )


def raise_alert(endpoint: Endpoint, finding: AlertReason) -> None:
    """Raise an alert and queue its notifications. One that fires already stays as it is."""
    with transaction.atomic():
        alert = _created(endpoint, finding)
        if alert is None:
            return
        audit.record(
            "alert.raise",
            kind="alert",
            target=alert,
            label=f"{endpoint.name}: {finding.kind.replace('_', ' ')}",
            project=endpoint.project,
            after={"reason": alert.reason},
        )
        _queue_deliveries(alert, "firing")


def _created(endpoint: Endpoint, finding: AlertReason) -> Alert | None:
    """Insert an alert. Returns None if the database has one that fires already."""
    try:
        with transaction.atomic():
            return Alert.objects.create(
                endpoint=endpoint,
                kind=finding.kind,
                subject=finding.subject,
                revision_id=finding.revision_id,
                reason=shorten(finding.reason, 1000),
            )
    except IntegrityError:
        return None


def _resolve(endpoint: Endpoint, alert: Alert) -> None:
    with transaction.atomic():
        if not Alert.objects.move(alert.pk, AlertState.RESOLVED, resolved_at=clock.now()):
            return
        audit.record(
            "alert.resolve",
            kind="alert",
            target=alert,
            label=f"{endpoint.name}: {alert.kind.replace('_', ' ')}",
            project=endpoint.project,
        )
        _queue_deliveries(alert, "resolved")


def _queue_deliveries(alert: Alert, news: str) -> None:
    """Queue a notification to every channel, unless the alert is snoozed. A task sends them."""
    if alert.snoozed_until is not None and alert.snoozed_until > clock.now():
        return
    for channel in AlertChannel.objects.filter(endpoint=alert.endpoint_id):
        AlertDelivery.objects.create(alert=alert, channel=channel, news=news)
