"""Trial requests to an endpoint, through its gateway."""

from typing import Any

from portal.accounts.models import User
from portal.core.streams import release_connection
from portal.endpoints.adapters.gateway_http import GatewayResponse, describe, invoke
from portal.endpoints.models import Endpoint
from portal.endpoints.services.keys import own_key


def try_out(*, endpoint: Endpoint, by: User, body: dict[str, Any]) -> GatewayResponse:
    """Request a prediction with a short-lived key. Call it outside a transaction."""
    key = own_key(endpoint=endpoint, by=by)
    release_connection()
    return invoke(endpoint=endpoint.name, key=key, body=body)


def described(*, endpoint: Endpoint, by: User) -> GatewayResponse:
    """Return the OpenAPI description that the gateway generates from the model's signature."""
    key = own_key(endpoint=endpoint, by=by)
    release_connection()
    return describe(endpoint=endpoint.name, key=key)
