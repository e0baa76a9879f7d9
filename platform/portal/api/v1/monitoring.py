"""Monitoring of endpoints: report, settings, alerts, notification channels."""

from typing import Annotated, Literal

from django.http import HttpRequest
from ninja import Query, Router, Status
from pydantic import BaseModel, Field

from portal.accounts.principal import require_principal
from portal.api.routing import gate
from portal.api.v1.serializers import PageParameters, page_of
from portal.core.pagination import paginate
from portal.endpoints.gates import EndpointRole, gated_endpoint
from portal.monitoring.models import Alert, AlertChannel
from portal.monitoring.monitor_settings import settings_of
from portal.monitoring.report import alert_out, build_report_query, view
from portal.monitoring.services import monitors
from portal.monitoring.services.monitors import (
    add_channel,
    change_watching,
    remove_channel,
)
from slipway.schemas.accounts import Role, Scope
from slipway.schemas.base import Line, PageOf
from slipway.schemas.dates import Moment
from slipway.schemas.monitoring import (
    AlertChannelCreated,
    AlertChannelIn,
    AlertChannelOut,
    AlertOut,
    MonitorChange,
    MonitoringOut,
    MonitorSettings,
    SnoozeIn,
)

router = Router(tags=["Monitoring"])
_SEE = EndpointRole(Role.VIEWER, Scope.WORKLOADS_READ)
_CHANGE = EndpointRole(Role.CONTRIBUTOR, Scope.WORKLOADS_WRITE)
_ALL = "/projects/{project}/endpoints/{endpoint}/monitoring"


class MonitoringQuery(BaseModel):
    """Time range, revision, and slice: `feature` `operator` `value`, such as age >= 65."""

    since: Moment | None = None
    until: Moment | None = None
    revision: int | None = Field(default=None, ge=1, le=2**31 - 1)
    feature: Annotated[Line, Field(max_length=250)] | None = None
    operator: Literal["=", "!=", "<", "<=", ">", ">="] = "="
    value: Annotated[Line, Field(max_length=200)] | None = None


@router.get(_ALL, auth=gate(_SEE), response=MonitoringOut)
def get_monitoring_report(
    request: HttpRequest, project: str, endpoint: str, query: Query[MonitoringQuery]
) -> MonitoringOut:
    """Get volume, latency, errors, features, quality and alerts of an endpoint."""
    return view(build_report_query(gated_endpoint(request), **query.model_dump()))


@router.get(f"{_ALL}/settings", auth=gate(_SEE), response=MonitorSettings)
def get_monitor_settings(request: HttpRequest, project: str, endpoint: str) -> MonitorSettings:
    """Get the monitoring settings, including defaults."""
    return settings_of(gated_endpoint(request))


@router.patch(f"{_ALL}/settings", auth=gate(_CHANGE), response=MonitorSettings)
def update_monitor_settings(
    request: HttpRequest, project: str, endpoint: str, payload: MonitorChange
) -> MonitorSettings:
    """Change the monitoring settings. Past measurements stay unchanged."""
    user = require_principal(request).user
    return change_watching(endpoint=gated_endpoint(request), by=user, change=payload)


@router.get(f"{_ALL}/alerts", auth=gate(_SEE), response=PageOf[AlertOut])
def list_alerts(
    request: HttpRequest, project: str, endpoint: str, query: PageParameters
) -> PageOf[AlertOut]:
    """List the endpoint's alerts, newest first, including resolved ones."""
    endpoint_row = gated_endpoint(request)
    revisions = {revision.pk: revision for revision in endpoint_row.revisions.defer("served")}
    rows = Alert.objects.filter(endpoint=endpoint_row)
    page = paginate(rows, cursor=query.cursor, limit=query.limit)
    return page_of(page, lambda alert: alert_out(alert, revisions))


@router.post(f"{_ALL}/alerts/{{alert}}/snooze", auth=gate(_CHANGE), response=AlertOut)
def snooze_alert(
    request: HttpRequest, project: str, endpoint: str, alert: str, payload: SnoozeIn
) -> AlertOut:
    """Pause the notifications of an alert for some hours."""
    endpoint_row, user = gated_endpoint(request), require_principal(request).user
    done = monitors.snooze_alert(
        endpoint=endpoint_row, alert_id=alert, by=user, hours=payload.hours
    )
    return alert_out(
        done, {revision.pk: revision for revision in endpoint_row.revisions.defer("served")}
    )


@router.get(f"{_ALL}/channels", auth=gate(_SEE), response=list[AlertChannelOut])
def list_alert_channels(request: HttpRequest, project: str, endpoint: str) -> list[AlertChannelOut]:
    """List the notification channels of alerts, without secrets."""
    rows = AlertChannel.objects.filter(endpoint=gated_endpoint(request))
    return [
        channel_out(alert_channel)
        for alert_channel in rows.select_related("made_by").order_by("pk")
    ]


@router.post(f"{_ALL}/channels", auth=gate(_CHANGE), response={201: AlertChannelCreated})
def create_alert_channel(
    request: HttpRequest, project: str, endpoint: str, payload: AlertChannelIn
) -> Status[AlertChannelCreated]:
    """Send alerts by e-mail or to a webhook. Only this response contains the secret."""
    user = require_principal(request).user
    made, secret = add_channel(endpoint=gated_endpoint(request), by=user, spec=payload)
    shown = channel_out(made).model_dump()
    return Status(201, AlertChannelCreated(**shown, secret=secret))


@router.delete(f"{_ALL}/channels/{{channel}}", auth=gate(_CHANGE), response={204: None})
def delete_alert_channel(
    request: HttpRequest, project: str, endpoint: str, channel: str
) -> Status[None]:
    """Stop sending alerts to a channel."""
    user = require_principal(request).user
    remove_channel(endpoint=gated_endpoint(request), channel_id=channel, by=user)
    return Status(204, None)


def channel_out(alert_channel: AlertChannel) -> AlertChannelOut:
    """Serialize a channel."""
    return AlertChannelOut(
        id=alert_channel.pk,
        kind=alert_channel.kind,
        target=alert_channel.target,
        made_by=alert_channel.made_by.email,
        last_error=alert_channel.last_error,
        undelivered=alert_channel.undelivered,
        created_at=alert_channel.created_at,
    )
