"""Finds the transactions that block a statement, over a connection of its own."""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import psycopg
import structlog

log = structlog.get_logger(__name__)
_IDLE_S: Final = 30.0
_BLOCKERS: Final = """
WITH RECURSIVE blockers(pid) AS (
    SELECT unnest(pg_blocking_pids(%(pid)s))
    UNION
    SELECT unnest(pg_blocking_pids(pid)) FROM blockers
)
SELECT count(*), array_agg((pid, xact_start)::text ORDER BY pid)
    FILTER (WHERE cardinality(pg_blocking_pids(pid)) = 0)
FROM blockers LEFT JOIN pg_stat_activity USING (pid)
"""
Result = TypeVar("Result")


@dataclass(frozen=True)
class State:
    """State of a running statement.

    `holders` are the transactions at the root of its lock queue, which wait for none themselves.
    """

    is_known: bool
    is_blocked: bool = False
    holders: tuple[str, ...] = ()


class Watch:
    """One thread that inspects statements while there are any to inspect."""

    def __init__(self, connect: Callable[[], "psycopg.Connection[Any]"]) -> None:
        self._connect = connect
        self._questions: queue.Queue[tuple[Callable[[Any], Any], Future[Any]]] = queue.Queue()
        self._lock = threading.Lock()
        self._is_running = False

    def state_of(self, pid: int, *, within_s: float) -> State:
        """Return the state of the statement of the server process `pid`."""

        def ask(connection: Any) -> State:
            count, holders = connection.execute(_BLOCKERS, {"pid": pid}).fetchone()
            return State(is_known=True, is_blocked=count > 0, holders=tuple(holders or ()))

        return self._submit(ask, within_s) or State(is_known=False)

    def cancel(self, pid: int, *, within_s: float) -> bool:
        """Cancel the statement of a process. Return False when the server does not answer."""

        def ask(connection: Any) -> bool:
            connection.execute("SELECT pg_cancel_backend(%s)", [pid])
            return True

        return self._submit(ask, within_s) or False

    def _submit(self, question: Callable[[Any], Result], within_s: float) -> Result | None:
        future: Future[Result] = Future()
        with self._lock:
            self._questions.put((question, future))
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._run, name="database-watch", daemon=True).start()
        try:
            return future.result(within_s)
        except (TimeoutError, psycopg.Error):
            # Nothing waits for the result any more, so do not query a server that recovers.
            future.cancel()
            return None

    def _run(self) -> None:
        connection: psycopg.Connection[Any] | None = None
        while True:
            try:
                question, future = self._questions.get(timeout=_IDLE_S)
            except queue.Empty:
                with self._lock:
                    if not self._questions.empty():
                        continue
                    self._is_running = False
                break
            if not future.set_running_or_notify_cancel():
                continue
            try:
                connection = connection or self._connect()
                future.set_result(question(connection))
            except psycopg.Error as error:
                future.set_exception(error)
                if connection is not None:
                    connection.close()
                connection = None
        if connection is not None:
            connection.close()
