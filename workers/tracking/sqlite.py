"""How MLflow uses SQLite beside the portal, which writes the same file."""

import sqlite3
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import Engine, event
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.pool import Pool

PATIENCE_MS = 20_000


def _on_connect(connection: Any, _record: Any) -> None:
    if isinstance(connection, sqlite3.Connection):
        # Reads stand outside a transaction; the first write begins one that has the lock. MLflow
        # nests sessions: one that took the lock when it began would wait for itself.
        connection.isolation_level = "IMMEDIATE"
        connection.execute(f"PRAGMA busy_timeout={PATIENCE_MS}")
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")


def _open(dialect: Any, _record: Any, arguments: list[Any], options: dict[str, Any]) -> Any:
    """Open a file that is there; SQLite itself would create an empty one. Raises sqlite3.Error."""
    if dialect.name != "sqlite":
        return None
    options = {name: value for name, value in options.items() if name != "uri"}
    return sqlite3.connect(f"file:{quote(arguments[0])}?mode=rw", uri=True, **options)


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
