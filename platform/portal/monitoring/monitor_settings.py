"""Monitoring settings of an endpoint, with defaults."""

from collections.abc import Collection, Mapping

from django.db import transaction

from portal.endpoints.models import Endpoint
from portal.monitoring.models import AlertChannel, Monitor
from slipway.schemas.monitoring import MonitorSettings


def monitor_of(endpoint: Endpoint) -> Monitor:
    """Return the monitor of an endpoint, created if needed.

    A new monitor gets a first channel: alerts are mailed to the creator of the endpoint. A service
    account has no mail, so its endpoints have no channel until somebody adds one.
    """
    with transaction.atomic():
        monitor, is_new = Monitor.objects.get_or_create(endpoint=endpoint)
        maker = endpoint.made_by
        if is_new and not maker.is_service_account:
            AlertChannel.objects.create(
                endpoint=endpoint, kind="email", target=maker.email, made_by=maker
            )
    return monitor


def settings_of(endpoint: Endpoint) -> MonitorSettings:
    """Return the monitoring settings of an endpoint."""
    monitor = Monitor.objects.filter(endpoint=endpoint).values_list("settings", flat=True).first()
    return MonitorSettings.model_validate(monitor or {})


class HiddenColumns:
    """Provides the columns that people chose to hide at capture."""

    def hidden_columns(self, endpoint_ids: Collection[str]) -> Mapping[str, Mapping[str, str]]:
        """Return the hidden columns by endpoint."""
        rows = Monitor.objects.exclude(settings={}).values_list("endpoint_id", "settings")
        requested = set(endpoint_ids)
        return {
            key: settings["hidden"]
            for key, settings in rows
            if key in requested and settings.get("hidden")
        }
