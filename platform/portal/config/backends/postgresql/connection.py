"""A connection whose statements are cancelled when the request may wait no longer."""

import time
from collections.abc import Generator
from typing import Any, Final

import psycopg
from psycopg.pq import TransactionStatus

from portal.config.backends.postgresql.watch import Watch
from portal.core import db_patience
from portal.core.db_patience import SLICE_S, DatabaseUnavailable, LockWait, Patience

# The value psycopg sends to a generator while nothing has arrived.
_NOTHING: Final = 0
_WATCH_ANSWERS_WITHIN_S: Final = 0.3
# The server commits at least this long before its client gives up, or not at all.
_MARGIN_S: Final = 0.3
_LEAST_S: Final = 0.2


class PatientConnection(psycopg.Connection[Any]):
    """A connection that observes the wait limits of the current request."""

    watch: Watch | None = None
    _transaction_began: float | None = None

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        """Wait for a response of the server, as long as the request may."""
        patience = db_patience.current()
        if patience is None or self.watch is None or timeout is not None:
            return super().wait(gen, interval, timeout)
        result = super().wait(_Limit(self, self.watch, patience).applied_to(gen), interval)
        db_patience.record_response()
        self._note_transaction()
        return result

    def _note_transaction(self) -> None:
        status = self.pgconn.transaction_status
        if status == TransactionStatus.IDLE:
            self._transaction_began = None
        elif status == TransactionStatus.INTRANS and self._transaction_began is None:
            self._transaction_began = time.monotonic()

    def commit(self) -> None:
        """Commit, unless the server gets to it only after the client has received a 503.

        A server that is frozen executes the statements in its socket buffers as soon as it resumes.
        """
        patience, began = db_patience.current(), self._transaction_began
        is_open = self.pgconn.transaction_status == TransactionStatus.INTRANS
        if patience is None or began is None or not is_open:
            super().commit()
            return
        within_s = max(patience.remaining_s - _MARGIN_S, _LEAST_S) + time.monotonic() - began
        try:
            # `now()` is when the transaction began, by the same clock.
            self.execute(
                "SELECT 1 / (clock_timestamp() - now() < interval "
                f"'{within_s:.3f} seconds')::int; COMMIT".encode()
            )
        except psycopg.errors.DivisionByZero:
            raise DatabaseUnavailable(
                "the commit exceeded its time limit; the transaction was rolled back"
            ) from None


class _Limit:
    """The limit of one statement."""

    def __init__(self, connection: PatientConnection, watch: Watch, patience: Patience) -> None:
        self._connection = connection
        self._watch = watch
        self._patience = patience
        self._is_canceled = False
        self._wait = LockWait(patience)

    def applied_to(self, gen: Any) -> Generator[Any, Any, Any]:
        """Yield what `gen` yields, checking the statement each time no data arrives for a slice."""
        began = time.monotonic()
        try:
            state = next(gen)
            while True:
                ready = yield state
                if ready == _NOTHING and time.monotonic() - began >= SLICE_S:
                    self._check(began)
                    began = time.monotonic()
                state = gen.send(ready)
        except StopIteration as stop:
            return stop.value

    def _check(self, began: float) -> None:
        pid = self._connection.pgconn.backend_pid
        if self._is_canceled:
            self._connection.close()
            raise DatabaseUnavailable("the database did not cancel a statement in time")
        state = self._watch.state_of(pid, within_s=_WATCH_ANSWERS_WITHIN_S)
        if state.is_known and not state.is_blocked:
            return
        waited_s = time.monotonic() - began
        try:
            if state.is_known:
                self._wait.spend(waited_s, state.holders)
            else:
                self._patience.spend(waited_s, progress=False)
        except DatabaseUnavailable:
            # Its error then reports that nothing was done, and the connection remains usable.
            self._is_canceled = state.is_known and self._watch.cancel(
                pid, within_s=_WATCH_ANSWERS_WITHIN_S
            )
            if not self._is_canceled:
                self._connection.close()
                raise
