"""Trying an endpoint out, through its gateway."""

from typing import Any

from portal.accounts.models import User
from portal.core.streams import let_go_of_the_database
from portal.endpoints.adapters.gateway_http import Answered, ask, describe
from portal.endpoints.models import Endpoint
from portal.endpoints.services.keys import own_key


def try_out(*, endpoint: Endpoint, by: User, body: dict[str, Any]) -> Answered:
    """Ask for a prediction with a short-lived key; call it outside a transaction."""
    key = own_key(endpoint=endpoint, by=by)
    let_go_of_the_database()
    return ask(endpoint=endpoint.name, key=key, body=body)


def described(*, endpoint: Endpoint, by: User) -> Answered:
    """Return the OpenAPI description that the gateway makes from the signature of the model."""
    key = own_key(endpoint=endpoint, by=by)
    let_go_of_the_database()
    return describe(endpoint=endpoint.name, key=key)
