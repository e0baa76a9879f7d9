"""SQLite settings for MLflow, which shares the database file with the portal."""

import sqlite3
import time
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from sqlalchemy import Engine, event
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.pool import Pool

# A client gets its 503 within two seconds while one transaction holds the lock. A statement queues
# longer behind others that commit. The portal does the same with its own database.
_STALL_S: Final = 1.2
_QUEUE_S: Final = 10.0
_SLICE_MS: Final = 250
_MLFLOWS_OWN_WAIT: Final = "PRAGMA busy_timeout"


class _Cursor(sqlite3.Cursor):
    def execute(self, statement: str, parameters: Any = ()) -> Any:
        """Run a statement.

        Outside a transaction it waits for other connections' lock, in slices.
        """
        if statement.startswith(_MLFLOWS_OWN_WAIT):
            statement = f"{_MLFLOWS_OWN_WAIT}={_SLICE_MS}"
        began = moved = time.monotonic()
        version = None
        while True:
            try:
                return super().execute(statement, parameters)
            except sqlite3.OperationalError as error:
                # Within a transaction the lock is either held already or cannot be acquired.
                if not _is_busy(error) or self.connection.in_transaction:
                    raise
                now = time.monotonic()
                current = _data_version(self.connection)
                if current is not None and current != version:
                    # The first poll does not show progress yet.
                    moved = moved if version is None else now
                    version = current
                if now - moved >= _STALL_S or now - began >= _QUEUE_S:
                    raise


class _Connection(sqlite3.Connection):
    def cursor(self, *_arguments: Any, **_options: Any) -> Any:
        return super().cursor(_Cursor)


def _is_busy(error: sqlite3.OperationalError) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY


def _data_version(connection: sqlite3.Connection) -> object:
    """Return a number that changes when another connection commits, or None if unknown."""
    try:
        return sqlite3.Connection.cursor(connection).execute("PRAGMA data_version").fetchone()
    except sqlite3.Error:
        return None


def _on_connect(connection: Any, _record: Any) -> None:
    if isinstance(connection, sqlite3.Connection):
        # Reads run outside a transaction. The first write begins one with the lock. MLflow nests
        # sessions, so taking the lock at the start of a session would deadlock.
        connection.isolation_level = "IMMEDIATE"
        connection.execute(f"PRAGMA busy_timeout={_SLICE_MS}")
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")


def _open(dialect: Any, _record: Any, arguments: list[Any], options: dict[str, Any]) -> Any:
    """Open an existing file, as SQLite would create an empty one. Raises sqlite3.Error."""
    if dialect.name != "sqlite":
        return None
    options = {name: value for name, value in options.items() if name != "uri"}
    path = f"file:{quote(arguments[0])}?mode=rw"
    return sqlite3.connect(path, uri=True, factory=_Connection, **options)


def _identity(path: str) -> tuple[int, int] | None:
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _on_checkout(connection: Any, record: Any, _proxy: Any) -> None:
    """Refuse a connection whose file was moved away: what is written to it is lost."""
    if not isinstance(connection, sqlite3.Connection):
        return
    path = connection.execute("PRAGMA database_list").fetchone()[2]
    if not path:  # in memory
        return
    identity = record.info.setdefault("file", _identity(path))
    if identity is None or identity != _identity(path):
        raise DisconnectionError("the database file is missing or was replaced")


def listen() -> None:
    """Prepare every connection that is opened from now on."""
    event.listen(Engine, "do_connect", _open)
    event.listen(Engine, "connect", _on_connect)
    event.listen(Pool, "checkout", _on_checkout)
