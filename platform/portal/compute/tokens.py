"""Secrets of nodes: join tokens and node tokens."""

import base64
import hashlib
import hmac
import re
import secrets

from django.conf import settings

_NODE = re.compile(r"\Asln_[A-Za-z0-9_-]{43}\Z")
_JOIN = re.compile(r"\Aslj_[A-Za-z0-9_-]{43}\Z")


def new_node_secret() -> str:
    """Return a new node token: `sln_` and 256 random bits."""
    return "sln_" + secrets.token_urlsafe(32)


def new_join_secret() -> str:
    """Return a new one-time join token: `slj_` and 256 random bits."""
    return "slj_" + secrets.token_urlsafe(32)


def allocation_join_secret(name: str) -> str:
    """Return the one-time join token of a task of an allocation, by the unique name of its node.

    It is derived from the key that is not in the database, so that an order whose answer was lost
    can be repeated with the same token.
    """
    return _derived_join_secret("allocation join token", name)


def machine_join_secret(name: str) -> str:
    """Return the one-time join token of a machine of a node group, derived in the same way."""
    return _derived_join_secret("machine join token", name)


def _derived_join_secret(purpose: str, name: str) -> str:
    key = hashlib.sha256(f"{purpose}\0{settings.SLIPWAY_SECRETS_KEY}".encode()).digest()
    digest = hmac.new(key, name.encode(), hashlib.sha256).digest()
    return "slj_" + base64.urlsafe_b64encode(digest).decode().rstrip("=")


def has_node_shape(text: str) -> bool:
    """Return True if `text` has the format of a node token."""
    return _NODE.match(text) is not None


def has_join_shape(text: str) -> bool:
    """Return True if `text` has the format of a join token."""
    return _JOIN.match(text) is not None


def bearer_of(header: str) -> str:
    """Return the token of a `Bearer` Authorization header, or an empty string for anything else."""
    scheme, _, secret = header.partition(" ")
    return secret.strip() if scheme.lower() == "bearer" else ""
