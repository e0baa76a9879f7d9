"""Rate limits, counted in Redis, or in this process while Redis is unavailable."""

import math
import time
from threading import Lock

import structlog
from django.conf import settings
from limits import RateLimitItem, RateLimitItemPerMinute
from limits.storage import RedisStorage
from limits.strategies import SlidingWindowCounterRateLimiter

from portal.core.errors import RateLimited

log = structlog.get_logger(__name__)
_REDIS_TIMEOUT_S = 0.25
_RETRY_REDIS_AFTER_S = 10.0
_LARGEST_BUNDLE = 50
_MOST_KEYS = 100_000


class _CountsHere:
    """Counts of this process: for each key, the current and the previous minute.

    Every hit has a constant cost: no hit is stored, and no thread cleans up.
    """

    def __init__(self) -> None:
        self._counts: dict[str, tuple[int, int, int]] = {}
        self._lock = Lock()

    def hit(self, limit: RateLimitItem, key: str, count: int) -> float:
        """Count some hits. Returns the seconds until the key may continue, 0 if it may now."""
        length_s = limit.get_expiry()
        now = time.time()
        window = int(now // length_s)
        passed = now / length_s - window
        key = limit.key_for(key)
        with self._lock:
            of, running, before = self._counts.get(key, (window, 0, 0))
            if of != window:
                running, before = 0, running if of == window - 1 else 0
            if before * (1 - passed) + running + count > limit.amount:
                self._counts[key] = (window, running, before)
                return length_s * (1 - passed)
            self._counts[key] = (window, running + count, before)
            if len(self._counts) > _MOST_KEYS:
                self._forget(window)
        return 0.0

    def _forget(self, window: int) -> None:
        """Drop keys that were not used recently, or all keys if all were."""
        self._counts = {key: kept for key, kept in self._counts.items() if kept[0] >= window - 1}
        if len(self._counts) > _MOST_KEYS:
            self._counts.clear()


class Throttle:
    """Counts hits of a key against a limit.

    An unavailable Redis costs one short timeout every ten seconds, not one per request.
    """

    def __init__(self, redis_url: str, per_minute: int) -> None:
        self.limit: RateLimitItem = RateLimitItemPerMinute(per_minute)
        self._redis_url = redis_url
        self._shared: SlidingWindowCounterRateLimiter | None = None
        self._local = _CountsHere()
        self._down_until = 0.0
        self._lock = Lock()

    def hit(self, key: str, count: int = 1) -> None:
        """Count some hits. Raises RateLimited when the key exceeded the limit of its minute."""
        left_s = self._wait_s(key, count)
        if left_s:
            wait_s = max(1, math.ceil(left_s))
            raise RateLimited(
                f"More than {self.limit.amount} requests in a minute.",
                next_step=f"Wait {wait_s} seconds and try again.",
                retry_after_s=wait_s,
            )

    def _wait_s(self, key: str, count: int) -> float:
        """Return the seconds until the key may continue, 0 if it may now."""
        if time.monotonic() >= self._down_until:
            try:
                limiter = self._limiter()
                if limiter.hit(self.limit, key, cost=count):
                    return 0.0
                left_s = limiter.get_window_stats(self.limit, key).reset_time - time.time()
                return max(left_s, 1.0)
            except Exception as error:  # noqa: BLE001  (whatever Redis does, requests are answered)
                self._note_down(error)
        return self._local.hit(self.limit, key, count)

    def _limiter(self) -> SlidingWindowCounterRateLimiter:
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


class Bundles:
    """Reports hits to a throttle in batches, where one call per hit would cost too much.

    The limit is exact to one batch per process, at most a hundredth of it. A key that exceeded
    its limit is refused until the throttle accepts the next batch.
    """

    def __init__(self, throttle: Throttle) -> None:
        self.throttle = throttle
        self._counted: dict[str, int] = {}

    def note(self, key: str) -> int:
        """Count one hit. Returns the size of the batch to report now, 0 if it is small."""
        size = max(1, min(_LARGEST_BUNDLE, self.throttle.limit.amount // 100))
        counted = self._counted.get(key, 0) + 1
        if counted < size:
            if len(self._counted) > _MOST_KEYS:
                self._counted.clear()
            self._counted[key] = counted
            return 0
        # One less than a bundle stays, so that the next hit asks again unless this one is taken.
        self._counted[key] = size - 1
        return size

    def tell(self, key: str, count: int) -> None:
        """Report a batch to the throttle. Raises RateLimited."""
        self.throttle.hit(key, count)
        self._counted[key] = 0


api_throttle = Throttle(settings.SLIPWAY_REDIS_URL, settings.SLIPWAY_API_REQUESTS_PER_MINUTE)
# An agent reports for its whole node: logs alone are several requests per second.
# Calls of one webhook.
hook_throttle = Throttle(settings.SLIPWAY_REDIS_URL, 60)
agent_throttle = Throttle(settings.SLIPWAY_REDIS_URL, settings.SLIPWAY_API_REQUESTS_PER_MINUTE * 10)
# Optuna reads and appends several times for each parameter of a trial.
optuna_throttle = Throttle(
    settings.SLIPWAY_REDIS_URL, settings.SLIPWAY_API_REQUESTS_PER_MINUTE * 10
)
# A training script logs a hundred times a second, and all ranks of a job share its token.
tracking_throttle = Bundles(
    Throttle(settings.SLIPWAY_REDIS_URL, settings.SLIPWAY_TRACKING_REQUESTS_PER_MINUTE)
)
