"""Secrets of this app: tokens of gateways, keys of endpoints, secrets of replicas."""

import re
import secrets

KEY_PREFIX = "slk_"
SHOWN = 8
_GATEWAY = re.compile(r"\Aslg_[A-Za-z0-9_-]{43}\Z")


def new_gateway_secret() -> str:
    """Return a new token of a gateway: `slg_` and 256 random bits."""
    return "slg_" + secrets.token_urlsafe(32)


def has_gateway_shape(text: str) -> bool:
    """Return whether `text` has the form of a gateway token."""
    return _GATEWAY.match(text) is not None


def new_key_secret() -> str:
    """Return a new key of an endpoint: `slk_` and 240 random bits."""
    return KEY_PREFIX + secrets.token_urlsafe(30)


def key_prefix(secret: str) -> str:
    """Return the prefix of a key that is stored in plain text to identify it."""
    return secret[: len(KEY_PREFIX) + SHOWN]


def new_replica_secret() -> str:
    """Return a new secret shared by a replica and its gateways."""
    return secrets.token_urlsafe(32)
