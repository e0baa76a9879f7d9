"""Sends requests to the gateway, as any client does."""

import ssl
import time
from dataclasses import dataclass
from typing import Any

import httpx
from django.conf import settings

from slipway.schemas.truncation import shorten

_ANSWER_WITHIN_S = 30.0
# Gateways receive a new key within this time, and nearly always within a fraction of a second.
KNOWN_WITHIN_S = 10.0
_ASK_AGAIN_S = 0.05
_UNKNOWN_KEY = 401
_AWAY = 503
_KEY_NOT_RECEIVED = (
    "The gateway has not received the key of the portal yet. Try again in a few seconds."
)


@dataclass(frozen=True)
class GatewayResponse:
    """Response of the gateway, with its latency."""

    status: int
    latency_ms: float
    body: Any


def invoke(*, endpoint: str, key: str, body: dict[str, Any]) -> GatewayResponse:
    """Send a body of `/invocations` to an endpoint. An unreachable gateway counts as a 503."""
    return _send("POST", f"/v1/{endpoint}/invocations", key, body)


def describe(*, endpoint: str, key: str) -> GatewayResponse:
    """Fetch the OpenAPI description of an endpoint."""
    return _send("GET", f"/v1/{endpoint}/openapi.json", key, None)


def _send(method: str, path: str, key: str, body: dict[str, Any] | None) -> GatewayResponse:
    url = f"{settings.SLIPWAY_GATEWAY_URL}{path}"
    headers = {"Authorization": f"Bearer {key}"}
    until = time.monotonic() + KNOWN_WITHIN_S
    began = time.perf_counter()
    try:
        # Trust this machine's authorities (SSL_CERT_FILE), but ignore its proxy variables.
        trusted = ssl.create_default_context()
        with httpx.Client(timeout=_ANSWER_WITHIN_S, trust_env=False, verify=trusted) as client:
            while True:
                began = time.perf_counter()
                request = client.request(method, url, json=body, headers=headers)
                took_ms = (time.perf_counter() - began) * 1000
                if request.status_code != _UNKNOWN_KEY:
                    return GatewayResponse(request.status_code, took_ms, _content(request))
                if time.monotonic() > until:
                    # The key is the portal's, so nobody who reads this could send another one.
                    return GatewayResponse(_AWAY, took_ms, {"detail": _KEY_NOT_RECEIVED})
                time.sleep(_ASK_AGAIN_S)
    except httpx.HTTPError as error:
        detail = f"The gateway does not respond ({type(error).__name__})."
        return GatewayResponse(_AWAY, (time.perf_counter() - began) * 1000, {"detail": detail})


def _content(value: httpx.Response) -> Any:
    try:
        return value.json()
    except ValueError:
        return shorten(value.text, 10_000)
