"""Turn DATABASE_URL into Django's DATABASES entries: the portal's, and that of MLflow's tables."""

from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

# WAL allows reads during a write. IMMEDIATE takes the write lock at BEGIN, so a transaction that
# reads and then writes waits its turn instead of failing midway.
_SQLITE_PRAGMAS = (
    "PRAGMA journal_mode=WAL;PRAGMA synchronous=NORMAL;PRAGMA foreign_keys=ON;"
    "PRAGMA temp_store=MEMORY;PRAGMA cache_size=-16000;"
)

# PostgreSQL schema of MLflow's tables.
SCHEMA = "mlflow"


def database_from(url: str, data_dir: Path) -> dict[str, Any]:
    """Return the DATABASES entry for `url`. An empty one means SQLite in `data_dir`."""
    if not url or url.startswith("sqlite:///"):
        path = url.removeprefix("sqlite:///") or str(data_dir / "slipway.sqlite3")
        return {
            "ENGINE": "portal.config.backends.sqlite",
            "NAME": path,
            # Each thread keeps it open, since opening it is half the work of a small request.
            "CONN_MAX_AGE": None,
            # pytest-django detects in-memory databases of Django's own engine alone.
            "TEST": {"NAME": ":memory:"},
            "OPTIONS": {
                "transaction_mode": "IMMEDIATE",
                "init_command": _SQLITE_PRAGMAS,
            },
        }
    parts = urlsplit(url)
    return {
        "ENGINE": "portal.config.backends.postgresql",
        "NAME": unquote(parts.path.lstrip("/")) or "slipway",
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": unquote(parts.hostname or ""),
        "PORT": str(parts.port or ""),
        "OPTIONS": {
            "connect_timeout": 5,
            # A machine that is gone sends nothing. Data not acknowledged by then counts as lost.
            "tcp_user_timeout": 5_000,
            "keepalives_idle": 5,
            "keepalives_interval": 2,
            "keepalives_count": 3,
            # Threads share few connections, and none of them reconnects. If fifty users launch a
            # notebook at the same time, the last one waits 4 s for a connection on two idle cores,
            # and longer on busy ones. Requests give up earlier while none is returned
            # (`portal.core.db_patience`). A recovered server is detected within a second, because
            # retries would back off otherwise.
            "pool": {"min_size": 1, "max_size": 16, "timeout": 10, "reconnect_timeout": 1},
        },
    }


def tracking_database_from(url: str, data_dir: Path) -> dict[str, Any]:
    """Return the DATABASES entry of MLflow's tables.

    With PostgreSQL they are in the same database under a schema of their own. Without it they are
    in a file of their own, so that metrics and the rest of the portal never wait for each other.
    """
    if not url.startswith("postgres"):
        return database_from(f"sqlite:///{data_dir / 'mlflow.db'}", data_dir)
    entry = database_from(url, data_dir)
    entry["OPTIONS"] |= {"options": f"-c search_path={SCHEMA}"}
    return entry
