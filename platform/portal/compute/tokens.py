"""Secrets of nodes: join tokens and node tokens."""

import re
import secrets

_NODE = re.compile(r"\Asln_[A-Za-z0-9_-]{43}\Z")
_JOIN = re.compile(r"\Aslj_[A-Za-z0-9_-]{43}\Z")


def new_node_secret() -> str:
    """Return a new node token: `sln_` and 256 random bits."""
    return "sln_" + secrets.token_urlsafe(32)


def new_join_secret() -> str:
    """Return a new one-time join token: `slj_` and 256 random bits."""
    return "slj_" + secrets.token_urlsafe(32)


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
