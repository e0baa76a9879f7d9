"""Delivers alerts by mail and to webhooks: at least once, signed, with a backoff on failures."""

from datetime import timedelta
from typing import Any

import orjson
import structlog
from django.conf import settings
from django.db import transaction
from django.db.models import F

from portal.accounts.mail import queue_mail
from portal.accounts.models import User
from portal.accounts.models.tenancy import role_in
from portal.core import clock
from portal.endpoints.replicas import cipher
from portal.monitoring.adapters.webhooks import NotDelivered, WebhookRefused, post, signature_of
from portal.monitoring.models import AlertChannel, AlertDelivery
from portal.monitoring.models.alerts import MAX_ATTEMPTS
from slipway.schemas.truncation import shorten

log = structlog.get_logger(__name__)
_CLAIM = timedelta(seconds=30)
_LONGEST = timedelta(hours=1)
_AT_ONCE = 50


def deliver_pending() -> int:
    """Send pending alert notifications. Returns the number sent."""
    due = AlertDelivery.objects.filter(
        sent_at=None, attempts__lt=MAX_ATTEMPTS, next_attempt_at__lte=clock.now()
    ).select_related("alert__endpoint__project", "channel")
    return sum(_deliver(alert_delivery) for alert_delivery in due.order_by("pk")[:_AT_ONCE])


def _deliver(alert_delivery: AlertDelivery) -> bool:
    claimed = AlertDelivery.objects.filter(
        pk=alert_delivery.pk,
        sent_at=None,
        attempts=alert_delivery.attempts,
        next_attempt_at=alert_delivery.next_attempt_at,
    ).update(attempts=F("attempts") + 1, next_attempt_at=clock.now() + _CLAIM)
    if not claimed:
        return False
    error = ""
    try:
        if alert_delivery.channel.kind == "email":
            return _mail(alert_delivery)
        _post(alert_delivery)
    except (WebhookRefused, NotDelivered) as problem:
        error = shorten(f"{alert_delivery.channel.kind} {problem}", 500)
    alert_deliveries = AlertDelivery.objects.filter(
        pk=alert_delivery.pk, attempts=alert_delivery.attempts + 1
    )
    if error:
        pause = min(_LONGEST, timedelta(seconds=10 * 2**alert_delivery.attempts))
        alert_deliveries.update(last_error=error, next_attempt_at=clock.now() + pause)
        log.warning("alert_not_delivered", delivery=alert_delivery.pk, reason=error)
    else:
        alert_deliveries.update(sent_at=clock.now(), last_error="")
    AlertChannel.objects.filter(pk=alert_delivery.channel_id).update(last_error=error)
    return not error


def address_of(alert_delivery: AlertDelivery) -> str:
    """Return the URL of the page that shows the alert."""
    endpoint = alert_delivery.alert.endpoint
    return f"{settings.SLIPWAY_URL}/p/{endpoint.project.slug}/endpoints/{endpoint.name}/monitoring"


def _headline(alert_delivery: AlertDelivery) -> str:
    name = alert_delivery.alert.endpoint.name
    kind = alert_delivery.alert.kind.replace("_", " ")
    return f"{name}: {kind} resolved" if alert_delivery.news == "resolved" else f"{name}: {kind}"


def _mail(alert_delivery: AlertDelivery) -> bool:
    """Queue a mail. Returns False, and sets an error on the channel, for a former member."""
    endpoint = alert_delivery.alert.endpoint
    member = User.objects.filter(
        email__iexact=alert_delivery.channel.target, is_active=True
    ).first()
    with transaction.atomic():
        done = AlertDelivery.objects.filter(pk=alert_delivery.pk, sent_at=None).update(
            sent_at=clock.now()
        )
        # Skip former members.
        is_member = member is not None and role_in(member, endpoint.project) is not None
        error = (
            ""
            if is_member
            else "not sent: the address no longer belongs to a member of the project"
        )
        AlertDelivery.objects.filter(pk=alert_delivery.pk).update(last_error=error)
        AlertChannel.objects.filter(pk=alert_delivery.channel_id).update(last_error=error)
        if done and is_member:
            queue_mail(
                to=alert_delivery.channel.target,
                subject=f"[{endpoint.project.name}] {_headline(alert_delivery)}",
                body=f"{alert_delivery.alert.reason}\n\n{address_of(alert_delivery)}\n",
            )
    return is_member


def _post(alert_delivery: AlertDelivery) -> None:
    url = cipher().decrypt(bytes(alert_delivery.channel.secret)).decode()
    target, _, secret = url.partition("\n")
    body = orjson.dumps(
        _slack(alert_delivery)
        if alert_delivery.channel.kind == "slack"
        else _webhook_payload(alert_delivery)
    )
    timestamp = int(clock.now().timestamp())
    headers = {
        "X-Slipway-Delivery": alert_delivery.pk,
        "X-Slipway-Timestamp": str(timestamp),
        "X-Slipway-Signature": signature_of(secret, timestamp, body),
    }
    post(target, body, headers)


def _webhook_payload(alert_delivery: AlertDelivery) -> dict[str, Any]:
    alert = alert_delivery.alert
    return {
        "id": alert_delivery.pk,
        "news": alert_delivery.news,
        "alert": alert.pk,
        "project": alert.endpoint.project.slug,
        "endpoint": alert.endpoint.name,
        "kind": alert.kind,
        "reason": alert.reason,
        "since": alert.created_at.isoformat(),
        "page": address_of(alert_delivery),
    }


def _slack(alert_delivery: AlertDelivery) -> dict[str, Any]:
    # Slack reads these three characters as markup, of links and mentions too.
    reason = alert_delivery.alert.reason
    for plain, safe in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        reason = reason.replace(plain, safe)
    return {
        "text": f"*{_headline(alert_delivery)}*\n{reason}\n"
        f"<{address_of(alert_delivery)}|Open in Slipway>"
    }
