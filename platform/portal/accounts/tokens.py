"""Generation, format check and hashing of API token secrets. No database here."""

import hashlib
import re
import secrets

PREFIX = "slp_"
SHOWN = 8
_SHAPE = re.compile(r"\Aslp_[A-Za-z0-9_-]{40}\Z")


def new_secret() -> str:
    """Return a new token: `slp_` and 240 random bits, recognisable to secret scanners."""
    return PREFIX + secrets.token_urlsafe(30)


def has_token_shape(text: str) -> bool:
    """Return True if `text` has the format of an API token."""
    return _SHAPE.match(text) is not None


def hash_of(secret: str) -> str:
    """Return the hex SHA-256 under which a token or a link is stored."""
    return hashlib.sha256(secret.encode()).hexdigest()


def token_prefix(secret: str) -> str:
    """Return the part of a token that is stored in plain text to recognise it by."""
    return secret[: len(PREFIX) + SHOWN]
