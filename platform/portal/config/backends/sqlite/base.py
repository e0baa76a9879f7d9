"""Django's backend for SQLite, with the rules of `portal.core.db_patience` and `.files`."""

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote

from django.db.backends.sqlite3 import base

from portal.config.backends.sqlite.files import files
from portal.core import db_patience
from portal.core.db_patience import SLICE_S, LockWait

# Lock timeout of background work.
_BACKGROUND_S: Final = 20.0
Result = TypeVar("Result")


def _is_busy(error: sqlite3.OperationalError) -> bool:
    """Return True if another connection holds a lock, so that the statement had no effect."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY


class _Wait:
    """The wait of one statement for a lock, slice by slice."""

    def __init__(self) -> None:
        patience = db_patience.current()
        self._began = self._slice_began = time.monotonic()
        self._others = LockWait(patience) if patience else None

    def spend_slice(self, connection: sqlite3.Connection | None, error: Exception) -> None:
        """Account for a slice in which the lock was not free. Raise when it was the last one."""
        now = time.monotonic()
        waited_s, self._slice_began = now - self._slice_began, now
        if self._others is None:
            if now - self._began >= _BACKGROUND_S:
                raise error
            return
        self._others.spend(waited_s, _data_version(connection))


def _data_version(connection: sqlite3.Connection | None) -> object:
    """Return a value that changes whenever another connection commits."""
    if connection is None:
        return None
    try:
        return connection.execute("PRAGMA data_version").fetchone()
    except sqlite3.Error:
        return None


class _Cursor(base.SQLiteCursorWrapper):
    def execute(self, query: str, params: Any = None) -> Any:
        """Run a statement. Outside a transaction, wait for the locks of other connections."""
        wait: _Wait | None = None
        while True:
            try:
                return super().execute(query, params)
            except sqlite3.OperationalError as error:
                # Within a transaction the lock is either held already or cannot be acquired.
                if self.connection.in_transaction or not _is_busy(error):
                    raise
                wait = wait or _Wait()
                wait.spend_slice(self.connection, error)


class DatabaseWrapper(base.DatabaseWrapper):
    """A connection that checks its file before each transaction, and before its commit."""

    def _file(self) -> str:
        """Return the path of the database file, or an empty string for one in memory."""
        return "" if self.is_in_memory_db() else str(self.settings_dict["NAME"])

    def get_connection_params(self) -> Any:
        """Open an existing file, and create one only in a process that may."""
        params = super().get_connection_params()
        if (path := self._file()) and not path.startswith("file:"):
            mode = "rwc" if files.may_create else "rw"
            params["database"] = f"file:{quote(str(Path(path).absolute()))}?mode={mode}"
        # Timeout of SQLite itself: `_Wait` retries.
        params["timeout"] = SLICE_S
        return params

    def get_new_connection(self, conn_params: Any) -> Any:
        """Connect, which also needs a lock briefly."""
        path = self._file()
        if path:
            files.check(path)
        connection = _patiently(
            lambda: super(DatabaseWrapper, self).get_new_connection(conn_params)
        )
        if path:
            files.check(path)
        return connection

    def create_cursor(self, name: Any = None) -> Any:
        """Return a cursor, if the file is still the one that is open."""
        if not self.in_atomic_block:
            self._check_file()
        return self.connection.cursor(factory=_Cursor)

    def _commit(self) -> Any:
        # Do not commit to a file that was deleted or replaced.
        self._check_file()
        result = super()._commit()  # type: ignore[misc]  # (its stubs leave it out)
        db_patience.record_response()
        return result

    def _check_file(self) -> None:
        if path := self._file():
            files.check(path)


def _patiently(connect: Callable[[], Result]) -> Result:
    wait: _Wait | None = None
    while True:
        try:
            return connect()
        except sqlite3.OperationalError as error:
            if not _is_busy(error):
                raise
            wait = wait or _Wait()
            wait.spend_slice(None, error)
