"""Check whether the last preparation is still valid, without loading Django.

Most starts are restarts with nothing to prepare. What cannot be checked here (PostgreSQL, which
others may change) counts as not prepared.
"""

import hashlib
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from portal.config.env import ROOT, STATIC_FOLDER, Env

_STAMP = "prepared"
_PORTAL = ROOT / "platform" / "portal"
_SECONDS_FOR_ANOTHER_TO_WRITE = 1.0


def _files() -> Iterator[Path]:
    """Yield the files whose change requires another preparation."""
    for folder in ("migrations", "static"):
        for path in sorted(_PORTAL.glob(f"*/{folder}/**/*")):
            if path.suffix != ".pyc":
                yield path
    # The wheel of the SDK and command line is built from these.
    for path in sorted((ROOT / "platform" / "slipway").rglob("*.py*")):
        if path.suffix != ".pyc":
            yield path
    yield ROOT / "pyproject.toml"
    yield _PORTAL / "config" / "settings.py"
    yield _PORTAL / "web" / "base" / "npm.py"
    yield ROOT / "requirements" / "portal.txt"
    yield ROOT / "package-lock.json"
    yield STATIC_FOLDER / ".stamp"


def _schema_version(database: Path) -> int:
    """Return SQLite's schema version, which counts changes of the tables. Raise sqlite3.Error.

    It is queried and not read from the file, which may lag behind the write-ahead log (WAL).
    """
    requested = f"{database.absolute().as_uri()}?mode=rw"
    with closing(
        sqlite3.connect(requested, uri=True, timeout=_SECONDS_FOR_ANOTHER_TO_WRITE)
    ) as connection:
        return int(connection.execute("PRAGMA schema_version").fetchone()[0])


def _fingerprint(settings: Env) -> str:
    """Return a digest of the code and the database, or an empty string if it cannot be computed."""
    if settings.database_url:
        return ""
    database = settings.data_dir / "slipway.sqlite3"
    digest = hashlib.sha256()
    try:
        digest.update(f"{_schema_version(database)}\0".encode())
        digest.update(str(database.stat().st_ino).encode())
        digest.update(str((settings.data_dir / "mlflow.db").stat().st_ino).encode())
        for path in _files():
            status = path.stat()
            digest.update(f"{path}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    except (OSError, sqlite3.Error):
        return ""
    return digest.hexdigest()


def is_prepared(settings: Env) -> bool:
    """Return True if nothing has changed since `note_prepared`."""
    try:
        noted = (settings.data_dir / _STAMP).read_text()
    except OSError:
        return False
    return noted != "" and noted == _fingerprint(settings)


def was_prepared(settings: Env) -> bool:
    """Return True if a preparation has ever finished in this data folder."""
    return (settings.data_dir / _STAMP).exists()


def note_prepared(settings: Env) -> None:
    """Record the current state as prepared. Raise OSError when it cannot be written."""
    (settings.data_dir / _STAMP).write_text(_fingerprint(settings))
