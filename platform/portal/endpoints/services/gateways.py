"""Admission of gateways."""

from dataclasses import dataclass

from django.db import transaction

from portal.accounts import audit
from portal.accounts.tokens import hash_of
from portal.core.text import clean_slug
from portal.endpoints.models import Gateway
from portal.endpoints.tokens import new_gateway_secret


@dataclass(frozen=True)
class AdmittedGateway:
    """A gateway and its token, which is not stored."""

    gateway: Gateway
    secret: str


def admit_gateway(*, name: str) -> AdmittedGateway:
    """Create a token for the gateway of that name. Its earlier token ends. Raises InvalidInput."""
    slug = clean_slug(name, field="name")
    secret = new_gateway_secret()
    with transaction.atomic():
        gateway, _ = Gateway.objects.update_or_create(
            name=slug, defaults={"token_hash": hash_of(secret)}
        )
        audit.record("gateway.admit", kind="gateway", target=gateway, label=slug)
    return AdmittedGateway(gateway, secret)
