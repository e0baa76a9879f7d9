"""Who waits for whom in PostgreSQL, and somebody who acts beside a test."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from django.db import connection, connections

from tests.processes import wait_for

Answer = TypeVar("Answer")
_WAITS = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND cardinality(pg_blocking_pids(pid)) > 0
"""


def somebody_waits() -> bool:
    """Whether a session on this database waits for a lock of another.

    Within a transaction the list of sessions is otherwise the one of the first look.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_clear_snapshot()")
        cursor.execute(_WAITS)
        return bool(cursor.fetchone()[0])


def deadlocks() -> int:
    """Return how many deadlocks PostgreSQL has ended in this database."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_force_next_flush()")
        cursor.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
        return int(cursor.fetchone()[0])


class Other(Generic[Answer]):
    """Somebody who acts at the same time, on a connection of their own."""

    def __init__(self, act: Callable[[], Answer]) -> None:
        self._act = act
        self._answers: list[Answer] = []
        self._errors: list[Exception] = []
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        """Begin to act; returns once the act waits for somebody, or is over."""
        self._thread.start()
        wait_for(
            lambda: self._answers or self._errors or somebody_waits(), "an end, or one who waits"
        )

    def end(self) -> Answer:
        """Wait for the end; returns what the act returned, and raises what it raised."""
        self._thread.join(30)
        if self._errors:
            raise self._errors[0]
        return self._answers[0]

    def _run(self) -> None:
        try:
            self._answers.append(self._act())
        except Exception as error:  # noqa: BLE001  (raised again where it is looked at)
            self._errors.append(error)
        finally:
            connections.close_all()
