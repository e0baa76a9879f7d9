"""Rate limits, counted in Redis and, when Redis does not answer, in this process."""

import math
import time
from threading import Lock

import structlog
from django.conf import settings
from limits import RateLimitItem, RateLimitItemPerMinute
from limits.storage import MemoryStorage, RedisStorage
from limits.strategies import MovingWindowRateLimiter, SlidingWindowCounterRateLimiter

from portal.core.errors import RateLimited

log = structlog.get_logger(__name__)
_REDIS_TIMEOUT_S = 0.25
_RETRY_REDIS_AFTER_S = 10.0


class Throttle:
    """Counts hits of a key against a limit.

    A Redis that is dead or frozen costs one short timeout every ten seconds, not one a request.
    """

    def __init__(self, redis_url: str, per_minute: int) -> None:
        self.limit: RateLimitItem = RateLimitItemPerMinute(per_minute)
        self._redis_url = redis_url
        self._shared: SlidingWindowCounterRateLimiter | None = None
        self._local = MovingWindowRateLimiter(MemoryStorage())
        self._down_until = 0.0
        self._lock = Lock()

    def hit(self, key: str) -> None:
        """Count one hit; raises RateLimited when the key has used up its minute."""
        limiter = self._limiter()
        try:
            allowed = limiter.hit(self.limit, key)
            reset_at = 0.0 if allowed else limiter.get_window_stats(self.limit, key).reset_time
        except Exception as error:
            if limiter is self._local:
                raise
            self._note_down(error)
            self.hit(key)
            return
        if not allowed:
            wait_s = max(1, math.ceil(reset_at - time.time()))
            raise RateLimited(
                f"More than {self.limit.amount} requests in a minute.",
                next_step=f"Wait {wait_s} seconds and try again.",
                retry_after_s=wait_s,
            )

    def _limiter(self) -> MovingWindowRateLimiter | SlidingWindowCounterRateLimiter:
        if time.monotonic() < self._down_until:
            return self._local
        with self._lock:
            if self._shared is None:
                storage = RedisStorage(
                    self._redis_url,
                    socket_timeout=_REDIS_TIMEOUT_S,
                    socket_connect_timeout=_REDIS_TIMEOUT_S,
                )
                self._shared = SlidingWindowCounterRateLimiter(storage)
            return self._shared

    def _note_down(self, error: Exception) -> None:
        self._down_until = time.monotonic() + _RETRY_REDIS_AFTER_S
        log.warning("rate_limit_counts_locally", reason=str(error) or type(error).__name__)


api_throttle = Throttle(settings.SLIPWAY_REDIS_URL, settings.SLIPWAY_API_REQUESTS_PER_MINUTE)
# An agent speaks for everything on its node: logs alone are several requests a second.
agent_throttle = Throttle(settings.SLIPWAY_REDIS_URL, settings.SLIPWAY_API_REQUESTS_PER_MINUTE * 10)
