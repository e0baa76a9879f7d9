"""Enqueue a Celery task after the commit, bounded in time, without failing the request.

A message carries no work. The work is in a row, and a periodic task polls for such rows anyway,
so a lost message costs seconds and nothing else. Therefore errors of a dead or frozen broker are
logged and suppressed here, and a circuit breaker skips the broker for a few seconds after a
failure.
"""

import threading
import time
from collections.abc import Callable
from typing import Protocol, cast

import structlog
from celery import shared_task
from django.db import transaction
from kombu.exceptions import OperationalError
from prometheus_client import Counter

log = structlog.get_logger(__name__)
LOST = Counter(
    "slipway_enqueue_failures_total", "Messages that the broker did not accept.", ["task"]
)

_REST_S = 5.0
# Concurrent messages. One that gets no turn soon is dropped rather than delayed.
_AT_ONCE = 8
_TURN_WITHIN_S = 0.4


class CeleryTask(Protocol):
    """The part of Celery's task interface used here."""

    name: str

    def __call__(self, *ids: str) -> None:
        """Run the task in this process."""

    def apply_async(self, args: tuple[str, ...], *, retry: bool) -> object:
        """Send the message."""


def background_task(name: str) -> Callable[[Callable[..., None]], CeleryTask]:
    """Declare a function of an app's `tasks.py` as the Celery task `name` (`app.verb_noun`).

    It takes ids, is idempotent, and finds its work in the rows.
    """
    return cast("Callable[[Callable[..., None]], CeleryTask]", shared_task(name=name))


class Breaker:
    """Circuit breaker: opens for `rest_s` seconds after a failure, then lets one caller retry."""

    def __init__(self, rest_s: float = _REST_S) -> None:
        self._rest_s = rest_s
        self._lock = threading.Lock()
        self._open_until = 0.0

    def allows(self) -> bool:
        """Return True if a call may be tried. After a rest, only the first caller may."""
        with self._lock:
            if self._open_until == 0.0:
                return True
            if time.monotonic() < self._open_until:
                return False
            self._open_until = time.monotonic() + self._rest_s
            return True

    def failed(self) -> bool:
        """Record a failure. Return True if it is the first since the last success."""
        with self._lock:
            is_news = self._open_until == 0.0
            self._open_until = time.monotonic() + self._rest_s
            return is_news

    def worked(self) -> None:
        """Record a success."""
        with self._lock:
            self._open_until = 0.0


_breaker = Breaker()
_turns = threading.BoundedSemaphore(_AT_ONCE)


def enqueue_on_commit(task: CeleryTask, *ids: str) -> None:
    """Enqueue `task` with `ids` after the surrounding transaction commits (at once without one)."""
    transaction.on_commit(lambda: enqueue_now(task, *ids))


def enqueue_now(task: CeleryTask, *ids: str) -> bool:
    """Enqueue the task at once. Return True if the broker accepted it.

    Takes at most about 1.2 s and never raises.
    """
    if not _breaker.allows():
        LOST.labels(task.name).inc()
        return False
    if not _turns.acquire(timeout=_TURN_WITHIN_S):
        LOST.labels(task.name).inc()
        return False
    try:
        task.apply_async(ids, retry=False)
    except (OperationalError, OSError) as error:
        LOST.labels(task.name).inc()
        if _breaker.failed():
            log.warning("broker_unavailable", task=task.name, reason=str(error)[:200])
        return False
    finally:
        _turns.release()
    _breaker.worked()
    return True
