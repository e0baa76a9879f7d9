"""Identifiers: a short prefix that names the kind, then a ULID, so ids sort by time of creation.

The layout (48 bits of milliseconds, 80 random bits, Crockford's base 32) follows the ULID
specification, https://github.com/ulid/spec; we write it in lower case.
"""

import re
import secrets
import time

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_BODY_LENGTH = 26
ID_MAX_LENGTH = 32
ID_PATTERN = re.compile(r"\A[a-z]{2,5}_[0-9a-hjkmnp-tv-z]{26}\Z")


def new_id(prefix: str) -> str:
    """Return a fresh id such as `prj_01jd…`; `prefix` is two to five lower-case letters."""
    value = (time.time_ns() // 1_000_000) << 80 | secrets.randbits(80)
    digits = [_ALPHABET[(value >> shift) & 31] for shift in range(125, -1, -5)]
    return f"{prefix}_{''.join(digits)}"


def is_id(text: str, prefix: str) -> bool:
    """Tell whether `text` has the shape of an id of that kind (it may still not exist)."""
    return text.startswith(f"{prefix}_") and ID_PATTERN.match(text) is not None
