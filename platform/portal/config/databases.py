"""Turn DATABASE_URL into Django's DATABASES entry."""

from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

# WAL lets readers go on while one writes; IMMEDIATE takes the write lock at BEGIN, so a
# transaction that reads and then writes waits its turn instead of failing half-way.
_SQLITE_PRAGMAS = (
    "PRAGMA journal_mode=WAL;PRAGMA synchronous=NORMAL;PRAGMA foreign_keys=ON;"
    "PRAGMA temp_store=MEMORY;PRAGMA cache_size=-16000;"
)


def database_from(url: str, data_dir: Path) -> dict[str, Any]:
    """Return the DATABASES entry for `url`; empty means SQLite in `data_dir`."""
    if not url or url.startswith("sqlite:///"):
        path = url.removeprefix("sqlite:///") or str(data_dir / "slipway.sqlite3")
        return {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": path,
            "OPTIONS": {
                "transaction_mode": "IMMEDIATE",
                "timeout": 20,
                "init_command": _SQLITE_PRAGMAS,
            },
        }
    parts = urlsplit(url)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(parts.path.lstrip("/")) or "slipway",
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": unquote(parts.hostname or ""),
        "PORT": str(parts.port or ""),
        "OPTIONS": {
            "connect_timeout": 5,
            # A request under ASGI has a thread of its own; without a pool each would connect anew.
            "pool": {"min_size": 1, "max_size": 16, "timeout": 5},
        },
    }
