"""Readiness checks of the control worker."""

import threading
import time

import redis
from django.db import Error as DatabaseProblem
from django.db import connection
from redis.backoff import NoBackoff
from redis.retry import Retry

from workers.health import Check

_PATIENCE_S = 1.0
_FRESH_S = 1.0


def check_database() -> Check:
    """Return whether the database answers a query."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseProblem as error:
        return Check(False, str(error).splitlines()[0][:200])
    finally:
        connection.close()  # the thread of this request ends now
    return Check(True, connection.vendor)


class BrokerCheck:
    """Check that Redis answers a PING within a second. It is sent at most once a second."""

    def __init__(self, url: str) -> None:
        self._client = redis.Redis.from_url(
            url,
            socket_timeout=_PATIENCE_S,
            socket_connect_timeout=_PATIENCE_S,
            retry=Retry(NoBackoff(), 0),
        )
        self._lock = threading.Lock()
        self._checked_at = 0.0
        self._result = Check(False, "not checked yet")

    def __call__(self) -> Check:
        """Ask, or repeat the last answer if it is fresh."""
        with self._lock:
            if not self._checked_at or time.monotonic() - self._checked_at > _FRESH_S:
                self._result = self._ping()
                self._checked_at = time.monotonic()
            return self._result

    def _ping(self) -> Check:
        try:
            self._client.ping()
        except redis.RedisError as error:
            return Check(False, f"{type(error).__name__}: {error}"[:200])
        return Check(True, "answers")
