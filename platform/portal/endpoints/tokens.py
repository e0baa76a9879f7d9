"""The secrets of this room: tokens of gateways, keys of endpoints, secrets of replicas."""

import re
import secrets

KEY_PREFIX = "slk_"
SHOWN = 8
_GATEWAY = re.compile(r"\Aslg_[A-Za-z0-9_-]{43}\Z")


def new_gateway_secret() -> str:
    """Return a fresh token of a gateway: `slg_` and 256 random bits."""
    return "slg_" + secrets.token_urlsafe(32)


def has_gateway_shape(text: str) -> bool:
    """Whether `text` could be the token of a gateway at all."""
    return _GATEWAY.match(text) is not None


def new_key_secret() -> str:
    """Return a fresh key of an endpoint: `slk_` and 240 random bits."""
    return KEY_PREFIX + secrets.token_urlsafe(30)


def shown_prefix(secret: str) -> str:
    """Return the part of a key that is kept in the clear to recognise it by."""
    return secret[: len(KEY_PREFIX) + SHOWN]


def new_replica_secret() -> str:
    """Return what a replica and its gateways know each other by."""
    return secrets.token_urlsafe(32)
