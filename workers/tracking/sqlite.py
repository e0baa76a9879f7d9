"""How MLflow uses SQLite beside the portal, which writes the same file."""

import sqlite3
from typing import Any

from sqlalchemy import Engine, event

PATIENCE_MS = 20_000


def _on_connect(connection: Any, _record: Any) -> None:
    if isinstance(connection, sqlite3.Connection):
        # Reads stand outside a transaction; the first write begins one that has the lock. MLflow
        # nests sessions: one that took the lock when it began would wait for itself.
        connection.isolation_level = "IMMEDIATE"
        connection.execute(f"PRAGMA busy_timeout={PATIENCE_MS}")
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")


def listen() -> None:
    """Prepare every connection that is opened from now on."""
    event.listen(Engine, "connect", _on_connect)
