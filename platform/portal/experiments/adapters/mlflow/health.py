"""Health check of MLflow's server, for pages that need it."""

import httpx
from django.conf import settings

_PROBE_S = 1.0


def is_tracking_reachable() -> bool:
    """Return whether MLflow's server answers within a second. Metrics are accepted without it.
    Artifacts, models and traces are not."""
    transport = httpx.HTTPTransport(uds=str(settings.SLIPWAY_TRACKING_SOCKET))
    try:
        with httpx.Client(transport=transport, timeout=_PROBE_S, trust_env=False) as client:
            headers = {"Authorization": f"Bearer {settings.SLIPWAY_TRACKING_SECRET}"}
            return client.get("http://tracking/health", headers=headers).is_success
    except httpx.TransportError:
        return False
