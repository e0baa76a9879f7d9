"""Monitoring settings of an endpoint, snoozing of alerts, and alert channels."""

import secrets
from datetime import timedelta
from typing import Any

from django.db import transaction

from portal.accounts import audit
from portal.accounts.models import Project, User
from portal.accounts.models.tenancy import role_in
from portal.core import clock
from portal.core.errors import Conflict, InvalidInput, NotFound
from portal.endpoints.models import Endpoint
from portal.endpoints.replicas import cipher
from portal.endpoints.transitions import raise_snapshot_version
from portal.monitoring.adapters.webhooks import WebhookRefused, checked
from portal.monitoring.label_basis import infer_basis, newest_revision
from portal.monitoring.models import Alert, AlertChannel, CapturedHour, Monitor
from portal.monitoring.monitor_settings import monitor_of
from slipway.schemas.monitoring import AlertChannelIn, MonitorChange, MonitorSettings

MOST_CHANNELS = 20
_SHOWN_OF_SECRET_URLS = 40


def change_watching(*, endpoint: Endpoint, by: User, change: MonitorChange) -> MonitorSettings:
    """Change the monitoring settings of an endpoint.

    Another task, label type or positive class recomputes quality. Windows stay as they are.
    """
    fields: dict[str, Any] = change.model_dump(mode="json", exclude_unset=True)
    with transaction.atomic():
        monitor = Monitor.objects.select_for_update(no_key=True).get(pk=monitor_of(endpoint).pk)
        before = MonitorSettings.model_validate(monitor.settings).model_dump(mode="json")
        nullable = {"min_accuracy", "max_mean_error", "max_error_percent", "max_p95_ms", "positive"}
        nullable |= {"task", "label_type"}
        given = {
            name: value for name, value in fields.items() if value is not None or name in nullable
        }
        after = MonitorSettings.model_validate(before | given)
        old, new = audit.difference(before, after.model_dump(mode="json"))
        if not new:
            return after
        Monitor.objects.filter(pk=monitor.pk).update(settings=after.model_dump(mode="json"))
        if new.keys() & {"task", "label_type"}:
            monitor.settings = after.model_dump(mode="json")
            infer_basis(endpoint, monitor, newest_revision(endpoint))
        if "positive" in new:
            CapturedHour.objects.filter(endpoint=endpoint).update(is_stale=True)
        if "hidden" in new:
            raise_snapshot_version(endpoint)
        audit.record(
            "endpoint.watch",
            kind="endpoint",
            target=endpoint,
            label=endpoint.name,
            project=endpoint.project,
            before=old,
            after=new,
        )
    return after


def snooze_alert(*, endpoint: Endpoint, alert_id: str, by: User, hours: float) -> Alert:
    """Suppress notifications of an alert for some hours. The page still shows it."""
    with transaction.atomic():
        alert = (
            Alert.objects.select_for_update(no_key=True)
            .filter(endpoint=endpoint, pk=alert_id)
            .first()
        )
        if alert is None:
            raise NotFound
        until = clock.now() + timedelta(hours=hours)
        if not Alert.objects.firing().filter(pk=alert.pk).update(snoozed_until=until):
            raise Conflict(
                "The alert is resolved, so there is nothing to snooze.",
                code="alert_resolved",
                next_step="List the alerts that are firing.",
            )
        alert.snoozed_until = until
        audit.record(
            "alert.snooze",
            kind="alert",
            target=alert,
            label=f"{endpoint.name}: {alert.kind}",
            project=endpoint.project,
            after={"until": until.isoformat()},
        )
    return alert


def add_channel(*, endpoint: Endpoint, by: User, spec: AlertChannelIn) -> tuple[AlertChannel, str]:
    """Add a receiver of alerts. Returns the channel, and the secret that signs webhooks."""
    target, secret, sealed = spec.target, "", b""
    if spec.kind == "email":
        _require_member(endpoint.project, target)
    else:
        _require_public(target)
        secret = secrets.token_urlsafe(32)
        sealed = cipher().encrypt(f"{target}\n{secret}".encode())
        target = target if spec.kind == "webhook" else target[:_SHOWN_OF_SECRET_URLS] + "…"
    with transaction.atomic():
        monitor_of(endpoint)
        alert_channels = AlertChannel.objects.filter(endpoint=endpoint)
        if alert_channels.count() >= MOST_CHANNELS:
            raise Conflict(
                f"{endpoint.name} already has {MOST_CHANNELS} alert channels.",
                code="too_many_channels",
                next_step="Remove one of them first.",
            )
        made = AlertChannel.objects.create(
            endpoint=endpoint, kind=spec.kind, target=target, secret=sealed, made_by=by
        )
        audit.record(
            "alert_channel.create",
            kind="alert_channel",
            target=made,
            label=f"{endpoint.name}: {spec.kind}",
            project=endpoint.project,
            after={"kind": spec.kind},
        )
    return made, secret if spec.kind == "webhook" else ""


def _require_member(project: Project, mail: str) -> None:
    member = User.objects.filter(email__iexact=mail, is_active=True).first()
    if member is None or role_in(member, project) is None:
        raise InvalidInput(
            "Alerts can only be mailed to members of the project.",
            code="no_member",
            field="target",
            next_step="Invite the person first, or use a webhook.",
        )


def _require_public(url: str) -> None:
    try:
        checked(url)
    except WebhookRefused as error:
        raise InvalidInput(
            f"The address {error}.",
            code="webhook_refused",
            field="target",
            next_step=(
                "Use a public https address, or ask an administrator to allow the host in "
                "SLIPWAY_WEBHOOK_HOSTS."
            ),
        ) from error


def remove_channel(*, endpoint: Endpoint, channel_id: str, by: User) -> None:
    """Remove a receiver of alerts. Raises NotFound."""
    with transaction.atomic():
        alert_channel = AlertChannel.objects.filter(endpoint=endpoint, pk=channel_id).first()
        if alert_channel is None:
            raise NotFound
        audit.record(
            "alert_channel.delete",
            kind="alert_channel",
            target=alert_channel,
            label=f"{endpoint.name}: {alert_channel.kind}",
            project=endpoint.project,
        )
        alert_channel.delete()
