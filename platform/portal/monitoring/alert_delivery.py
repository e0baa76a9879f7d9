"""Telling alerts: by mail and to webhooks, at least once, signed, with pauses after failures."""

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
    """Tell what is due; returns how many were told."""
    due = AlertDelivery.objects.filter(
        sent_at=None, attempts__lt=MAX_ATTEMPTS, next_attempt_at__lte=clock.now()
    ).select_related("alert__endpoint__project", "channel")
    return sum(_tell(one) for one in due.order_by("pk")[:_AT_ONCE])


def _tell(one: AlertDelivery) -> bool:
    claimed = AlertDelivery.objects.filter(
        pk=one.pk, sent_at=None, attempts=one.attempts, next_attempt_at=one.next_attempt_at
    ).update(attempts=F("attempts") + 1, next_attempt_at=clock.now() + _CLAIM)
    if not claimed:
        return False
    error = ""
    try:
        if one.channel.kind == "email":
            return _mail(one)
        _post(one)
    except (WebhookRefused, NotDelivered) as problem:
        error = shorten(f"{one.channel.kind} {problem}", 500)
    mine = AlertDelivery.objects.filter(pk=one.pk, attempts=one.attempts + 1)
    if error:
        pause = min(_LONGEST, timedelta(seconds=10 * 2**one.attempts))
        mine.update(last_error=error, next_attempt_at=clock.now() + pause)
        log.warning("alert_not_told", delivery=one.pk, reason=error)
    else:
        mine.update(sent_at=clock.now(), last_error="")
    AlertChannel.objects.filter(pk=one.channel_id).update(last_error=error)
    return not error


def address_of(one: AlertDelivery) -> str:
    """Return the address of the page that shows the alert."""
    endpoint = one.alert.endpoint
    return f"{settings.SLIPWAY_URL}/p/{endpoint.project.slug}/endpoints/{endpoint.name}/monitoring"


def _headline(one: AlertDelivery) -> str:
    name = one.alert.endpoint.name
    said = one.alert.kind.replace("_", " ")
    return f"{name}: {said} resolved" if one.news == "resolved" else f"{name}: {said}"


def _mail(one: AlertDelivery) -> bool:
    """Queue a mail; False, and a word on the channel, where nobody may read it any more."""
    endpoint = one.alert.endpoint
    member = User.objects.filter(email__iexact=one.channel.target, is_active=True).first()
    with transaction.atomic():
        done = AlertDelivery.objects.filter(pk=one.pk, sent_at=None).update(sent_at=clock.now())
        # Somebody who left is not told any more.
        is_member = member is not None and role_in(member, endpoint.project) is not None
        error = "" if is_member else "not sent: no member of the project has this address any more"
        AlertDelivery.objects.filter(pk=one.pk).update(last_error=error)
        AlertChannel.objects.filter(pk=one.channel_id).update(last_error=error)
        if done and is_member:
            queue_mail(
                to=one.channel.target,
                subject=f"[{endpoint.project.name}] {_headline(one)}",
                body=f"{one.alert.reason}\n\n{address_of(one)}\n",
            )
    return is_member


def _post(one: AlertDelivery) -> None:
    url = cipher().decrypt(bytes(one.channel.secret)).decode()
    target, _, secret = url.partition("\n")
    body = orjson.dumps(_slack(one) if one.channel.kind == "slack" else _news(one))
    moment = int(clock.now().timestamp())
    headers = {
        "X-Slipway-Delivery": one.pk,
        "X-Slipway-Timestamp": str(moment),
        "X-Slipway-Signature": signature_of(secret, moment, body),
    }
    post(target, body, headers)


def _news(one: AlertDelivery) -> dict[str, Any]:
    alert = one.alert
    return {
        "id": one.pk,
        "news": one.news,
        "alert": alert.pk,
        "project": alert.endpoint.project.slug,
        "endpoint": alert.endpoint.name,
        "kind": alert.kind,
        "reason": alert.reason,
        "since": alert.created_at.isoformat(),
        "page": address_of(one),
    }


def _slack(one: AlertDelivery) -> dict[str, Any]:
    # Slack reads these three characters as markup, of links and mentions too.
    reason = one.alert.reason
    for plain, safe in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        reason = reason.replace(plain, safe)
    return {"text": f"*{_headline(one)}*\n{reason}\n<{address_of(one)}|Open in Slipway>"}
