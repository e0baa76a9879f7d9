"""Cross-process change notification: LISTEN/NOTIFY on PostgreSQL, a data-version poll on SQLite.

Code whose changes others wait for calls `notify_listeners` in the transaction of the change. On
PostgreSQL that is a NOTIFY, which is delivered once the transaction has committed and its rows are
visible. On SQLite the data version is polled forty times a second, which costs microseconds.
Notifications may be lost: the threads of a `ChangeListener` also poll once a second.
"""

import threading
import time
from typing import Any, Final

import structlog
from django.db import Error, connection

log = structlog.get_logger(__name__)
_CHANNEL: Final = "slipway_changed"
# Poll interval on SQLite, and while it is not known whether notifications arrive.
_LOOK_EVERY_S: Final = 0.025
_LOOK_ALL_THE_SAME_S: Final = 1.0
_AFTER_TROUBLE_S: Final = 1.0
_IDLE_S: Final = 5.0


def notify_listeners() -> None:
    """Notify the listeners of every process once this transaction has committed."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(f"NOTIFY {_CHANNEL}")


class ChangeListener:
    """Notifies the threads of a process of possible changes.

    One thread with a connection of its own listens while any thread waits. On PostgreSQL it first
    sends a notification to itself. Behind a transaction pooler that does not arrive, and until one
    does the waiting threads poll forty times a second.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._notifications = 0
        self._is_listening = False
        self._thread: threading.Thread | None = None
        self._waited_at = 0.0

    def notification_count(self) -> int:
        """Return the count of notifications. Read it before polling, and pass it to `wait`."""
        with self._changed:
            return self._notifications

    def wake_waiters(self) -> None:
        """Wake up the waiting threads of this process."""
        with self._changed:
            self._notifications += 1
            self._changed.notify_all()

    def wait(self, known: int) -> None:
        """Return after a notification later than `known`, or when the next poll is due."""
        with self._changed:
            self._waited_at = time.monotonic()
            if self._thread is None:
                self._thread = threading.Thread(target=self._listen, name="notify", daemon=True)
                self._thread.start()
            within_s = _LOOK_ALL_THE_SAME_S if self._is_listening else _LOOK_EVERY_S
            self._changed.wait_for(lambda: self._notifications != known, within_s)

    def _listen(self) -> None:
        database: Any = connection  # mypy knows only the interface common to all databases
        listen_once = self._listen_on_sqlite if database.vendor == "sqlite" else self._listen_once
        while self._has_waiters():
            try:
                listen_once(database)
            except (Error, database.Database.Error) as error:
                log.warning("notification_failed", reason=str(error).strip()[:200])
                time.sleep(_AFTER_TROUBLE_S)
            finally:
                self._is_listening = False

    def _listen_once(self, database: Any) -> None:
        parameters = database.get_connection_params()
        parameters["application_name"] = "slipway notifications"
        with database.Database.connect(**parameters, autocommit=True) as heard:
            heard.execute(f"LISTEN {_CHANNEL}")
            heard.execute(f"NOTIFY {_CHANNEL}")
            while self._has_waiters():
                for _ in heard.notifies(timeout=_LOOK_ALL_THE_SAME_S, stop_after=1):
                    self._is_listening = True
                    self.wake_waiters()

    def _listen_on_sqlite(self, database: Any) -> None:
        try:
            database.ensure_connection()
            count = None
            while self._has_waiters():
                row = database.connection.execute("PRAGMA data_version").fetchone()
                if row != count:
                    count, self._is_listening = row, True
                    self.wake_waiters()
                time.sleep(_LOOK_EVERY_S)
        finally:
            database.close()

    def _has_waiters(self) -> bool:
        with self._changed:
            if time.monotonic() - self._waited_at < _IDLE_S:
                return True
            self._thread = None
            return False


listener: Final = ChangeListener()
