"""Identifiers: a short prefix that names the kind, then a ULID, so ids sort by time of creation.

The layout (48 bits of milliseconds, 80 random bits, Crockford's base 32) and the rule for several
within one millisecond (each greater than the one before, within a process) follow the ULID
specification, https://github.com/ulid/spec. We write it in lower case.
"""

import os
import re
import secrets
import threading
import time

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_BODY_LENGTH = 26
ID_MAX_LENGTH = 32
ID_PATTERN = re.compile(r"\A[a-z]{2,5}_[0-9a-hjkmnp-tv-z]{26}\Z")


class _Ulids:
    """Generates strictly increasing ULIDs, even if the clock is set back. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0

    def next(self) -> int:
        """Return the next one: of this millisecond, or a random increment of the last one."""
        fresh = (time.time_ns() // 1_000_000) << 80 | secrets.randbits(80)
        with self._lock:
            if fresh >> 80 > self._last >> 80:
                self._last = fresh
            else:
                self._last += 1 + secrets.randbits(48)
            return self._last

    def reset_after_fork(self) -> None:
        """Reset the last ULID and the lock, in a child process just forked."""
        self._lock = threading.Lock()
        self._last = 0


_ulids = _Ulids()
os.register_at_fork(after_in_child=_ulids.reset_after_fork)


def new_id(prefix: str) -> str:
    """Return a new id such as `prj_01jd…`. `prefix` is two to five lower-case letters."""
    value = _ulids.next()
    digits = [_ALPHABET[(value >> shift) & 31] for shift in range(125, -1, -5)]
    return f"{prefix}_{''.join(digits)}"


def is_id(text: str, prefix: str) -> bool:
    """Return True if `text` has the format of an id of that kind (it may not exist)."""
    return text.startswith(f"{prefix}_") and ID_PATTERN.match(text) is not None
