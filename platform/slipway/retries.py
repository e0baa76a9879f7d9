"""When a request is sent again, and how long to wait before."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

RETRIED_STATUSES = frozenset({429, 502, 503, 504})
_SECONDS = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True)
class Retries:
    """Retry policy of requests: number of attempts, and waiting times.

    `attempts` includes the first one. 1 disables retries. The wait doubles from `first_wait_s`
    seconds, with jitter. When the server asks for more than `longest_wait_s` seconds, the error
    is raised instead.
    """

    attempts: int = 4
    first_wait_s: float = 0.25
    longest_wait_s: float = 60.0

    def wait_s(self, attempt: int, *, asked_s: int | None, jitter: float) -> float | None:
        """Return the seconds to wait after `attempt` (from 1) failed, or None to give up.

        `asked_s` is the server's Retry-After. `jitter` is a random number from 0 to 1.
        """
        if attempt >= self.attempts or (asked_s or 0) > self.longest_wait_s:
            return None
        backoff = self.first_wait_s * 2.0 ** (attempt - 1) * (0.5 + jitter)
        wait: float = min(backoff, self.longest_wait_s)
        if asked_s is not None:
            # Never earlier than asked, and with jitter, so that clients do not return together.
            wait = max(wait, asked_s + self.first_wait_s * jitter)
        return wait


def retry_after_s(headers: Mapping[str, str], *, now: datetime | None = None) -> int | None:
    """Return the whole seconds a Retry-After header asks to wait, or None without a usable one."""
    text = headers.get("retry-after", "").strip()
    if _SECONDS.fullmatch(text):
        return int(text)
    try:
        timestamp = parsedate_to_datetime(text)
    except ValueError:
        return None
    if timestamp.tzinfo is None:
        timestamp = timestamp.replace(tzinfo=UTC)
    return max(0, round((timestamp - (now or datetime.now(UTC))).total_seconds()))
