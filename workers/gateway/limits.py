"""Rate limits: token buckets that cost half a microsecond."""

import time

from slipway.schemas.serving import Rate


class TokenBucket:
    """Token bucket of a rate per second, with at most `burst` tokens. Starts full."""

    __slots__ = ("_burst", "_left", "_per_s", "_refilled_at", "rate")

    def __init__(self, rate: Rate) -> None:
        self.rate = rate
        self._per_s = rate.per_s
        self._burst = float(rate.burst)
        self._left = float(rate.burst)
        self._refilled_at = time.monotonic()

    def acquire(self, now: float) -> bool:
        """Take a token. Returns False if there is none."""
        left = self._left + (now - self._refilled_at) * self._per_s
        self._refilled_at = now
        if left > self._burst:
            left = self._burst
        if left < 1.0:
            self._left = left
            return False
        self._left = left - 1.0
        return True

    def refund(self) -> None:
        """Return an unused token."""
        self._left += 1.0

    def wait_s(self) -> float:
        """Return the seconds until the next token is available."""
        return max(0.0, (1.0 - self._left) / self._per_s)


def bucket_for(rate: Rate | None, old: TokenBucket | None) -> TokenBucket | None:
    """Return a bucket of this rate. The old one is reused with its tokens if it has that rate."""
    if rate is None:
        return None
    return old if old is not None and old.rate == rate else TokenBucket(rate)
