"""Secrets between the portal, the Hub and the notebook servers."""

import base64
import hashlib
import hmac
import re
import secrets

from django.conf import settings

_HUB = re.compile(r"\Aslh_[A-Za-z0-9_-]{43}\Z")


def new_hub_secret() -> str:
    """Return a fresh token of a Hub: `slh_` and 256 random bits."""
    return "slh_" + secrets.token_urlsafe(32)


def has_hub_shape(text: str) -> bool:
    """Return True if `text` has the format of a Hub's token."""
    return _HUB.match(text) is not None


def server_token(workload_id: str, attempt: int) -> str:
    """Return what a server speaks to the Hub with, the same each time it is asked for.

    It is derived, not stored, so that a Hub which lost its database knows its servers again.
    """
    key = hashlib.sha256(f"notebook server\0{settings.SLIPWAY_SECRETS_KEY}".encode()).digest()
    digest = hmac.new(key, f"{workload_id}\0{attempt}".encode(), hashlib.sha256).digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")
