"""API keys of endpoints: creation and revocation."""

from dataclasses import dataclass
from datetime import timedelta

from django.db import transaction

from portal.accounts import audit
from portal.accounts.models import User
from portal.accounts.tokens import hash_of
from portal.core import clock
from portal.core.errors import Conflict, NotFound
from portal.endpoints.models import Endpoint, EndpointKey
from portal.endpoints.replicas import cipher
from portal.endpoints.tokens import key_prefix, new_key_secret
from portal.endpoints.transitions import add_event, raise_snapshot_version
from slipway.schemas.endpoints import EndpointKeyIn

_OWN_LIVES = timedelta(minutes=5)
_OWN_LEFT = timedelta(minutes=1)
_MOST = 1000


@dataclass(frozen=True)
class NewKey:
    """A key and its text, which is not stored."""

    key: EndpointKey
    secret: str


def create_key(*, endpoint: Endpoint, by: User, spec: EndpointKeyIn) -> NewKey:
    """Create a key. Only this response has its text. Raises Conflict beyond a thousand keys."""
    secret = new_key_secret()
    days = spec.expires_in_days
    with transaction.atomic():
        timestamp = clock.now()
        if EndpointKey.objects.usable(timestamp).filter(endpoint=endpoint).count() >= _MOST:
            raise Conflict(
                f"The endpoint has {_MOST} active keys.",
                code="too_many_keys",
                next_step="Revoke unused keys.",
            )
        key = EndpointKey.objects.create(
            endpoint=endpoint,
            name=spec.name,
            sha256=hash_of(secret),
            prefix=key_prefix(secret),
            scopes=sorted(set(spec.scopes)),
            rate_per_s=spec.rate.per_s if spec.rate else None,
            burst=spec.rate.burst if spec.rate else None,
            expires_at=timestamp + timedelta(days=days) if days else None,
            made_by=by,
        )
        add_event(endpoint, "key", f"{by.display_name} created the key {key.name}.")
        audit.record(
            "endpoint.key_create",
            kind="endpoint_key",
            target=key,
            label=f"{endpoint.name}: {key.name}",
            project=endpoint.project,
            after={"scopes": key.scopes, "expires_in_days": days},
        )
        raise_snapshot_version(endpoint)
    return NewKey(key, secret)


def revoke_key(*, endpoint: Endpoint, by: User | None, key_id: str) -> EndpointKey:
    """Revoke a key. Idempotent. Raises NotFound if the endpoint has no such key.

    `by` is None for an operator at the command line.
    """
    with transaction.atomic():
        key = EndpointKey.objects.shown().filter(endpoint=endpoint, pk=key_id).first()
        if key is None:
            raise NotFound
        timestamp = clock.now()
        active = EndpointKey.objects.filter(pk=key.pk, revoked_at__isnull=True)
        if active.update(revoked_at=timestamp):
            key.revoked_at = timestamp
            name = by.display_name if by else "An operator"
            add_event(endpoint, "key", f"{name} revoked the key {key.name}.")
            audit.record(
                "endpoint.key_revoke",
                kind="endpoint_key",
                target=key,
                label=f"{endpoint.name}: {key.name}",
                project=endpoint.project,
            )
            raise_snapshot_version(endpoint)
    return key


def own_key(*, endpoint: Endpoint, by: User) -> str:
    """Return the text of a short-lived key of the portal itself, for trial requests."""
    with transaction.atomic():
        timestamp = clock.now()
        endpoint_keys = EndpointKey.objects.exclude(sealed=b"").filter(endpoint=endpoint)
        key = endpoint_keys.filter(expires_at__gt=timestamp + _OWN_LEFT).order_by("-pk").first()
        if key is not None:
            return cipher().decrypt(bytes(key.sealed)).decode()
        secret = new_key_secret()
        EndpointKey.objects.create(
            endpoint=endpoint,
            name="portal",
            sha256=hash_of(secret),
            prefix=key_prefix(secret),
            sealed=cipher().encrypt(secret.encode()),
            scopes=["predict"],
            expires_at=timestamp + _OWN_LIVES,
            made_by=by,
        )
        raise_snapshot_version(endpoint)
    return secret
