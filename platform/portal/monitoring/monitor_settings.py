"""How an endpoint is watched: what somebody chose, else the defaults."""

from collections.abc import Collection, Mapping

from django.db import transaction

from portal.endpoints.models import Endpoint
from portal.monitoring.models import AlertChannel, Monitor
from slipway.schemas.monitoring import MonitorSettings


def monitor_of(endpoint: Endpoint) -> Monitor:
    """Return what we know about watching an endpoint, made when it is not there.

    With it comes the first channel: alerts are mailed to whoever made the endpoint.
    """
    with transaction.atomic():
        monitor, is_new = Monitor.objects.get_or_create(endpoint=endpoint)
        if is_new:
            maker = endpoint.made_by
            AlertChannel.objects.create(
                endpoint=endpoint, kind="email", target=maker.email, made_by=maker
            )
    return monitor


def settings_of(endpoint: Endpoint) -> MonitorSettings:
    """Return how an endpoint is watched."""
    monitor = Monitor.objects.filter(endpoint=endpoint).values_list("settings", flat=True).first()
    return MonitorSettings.model_validate(monitor or {})


class HiddenColumns:
    """Which columns people chose to hide at capture."""

    def hidden_of(self, endpoint_ids: Collection[str]) -> Mapping[str, Mapping[str, str]]:
        """Return by endpoint its hidden columns."""
        rows = Monitor.objects.exclude(settings={}).values_list("endpoint_id", "settings")
        requested = set(endpoint_ids)
        return {
            key: settings["hidden"]
            for key, settings in rows
            if key in requested and settings.get("hidden")
        }
