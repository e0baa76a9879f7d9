"""MLflow's tables, created and upgraded by MLflow itself in a separate process before the start.

An empty database of the installed version is stored in the installation's cache. On SQLite it is
copied, which takes milliseconds instead of seconds. Its version is the required one everywhere.
"""

import os
import shutil
import sqlite3
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit
from zlib import crc32

from django.db import connections
from django.db.backends.postgresql.base import DatabaseWrapper as PostgresConnection

from portal.config.databases import SCHEMA
from portal.config.env import ROOT
from portal.config.local_node import base_environment
from portal.config.setup.lock import file_lock
from portal.config.supervision.errors import StartError
from portal.config.tracking_server import store_uri
from portal.experiments.adapters.mlflow.indexes import INDEXES
from portal.experiments.models.tables import DATABASE

_PATIENCE_S = 600


def _upgrade(uri: str) -> None:
    """Let MLflow create or upgrade its tables. Raise StartError with its last error line."""
    done = subprocess.run(
        [sys.executable, "-m", "workers.tracking.upgrade"],
        cwd=ROOT,
        env=base_environment(dict(os.environ))
        | {"MLFLOW_BACKEND_STORE_URI": uri, "MLFLOW_DISABLE_TELEMETRY": "true"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_PATIENCE_S,
        check=False,
    )
    if done.returncode != 0:
        words = " ".join(done.stderr.splitlines()[-1:])[:300]
        raise StartError(
            f"MLflow's tables cannot be migrated ({words}); check that the database is intact "
            "and that `make setup` has finished."
        )


def template() -> Path:
    """Return an empty SQLite database of the installed MLflow, created once an installation."""
    mark = crc32("".join(INDEXES).encode())
    path = ROOT / ".cache" / f"tracking-{version('mlflow')}-{mark:08x}.sqlite3"
    path.parent.mkdir(exist_ok=True)
    with file_lock(path.with_suffix(".lock")):
        if not path.exists():
            half = path.with_suffix(".half")
            half.unlink(missing_ok=True)
            _upgrade(f"sqlite:///{half}")
            with sqlite3.connect(half) as made:
                for index in INDEXES:
                    made.execute(index)
                made.execute("PRAGMA journal_mode=DELETE")
            made.close()
            half.replace(path)
    return path


def _expected_version() -> str:
    connection = sqlite3.connect(f"file:{template()}?mode=ro", uri=True)
    try:
        return str(connection.execute("SELECT version_num FROM alembic_version").fetchone()[0])
    finally:
        connection.close()


def present_version() -> str:
    """Return the current version of the tables, or an empty string when there are none."""
    connection = connections[DATABASE]
    try:
        with connection.cursor() as cursor:
            if connection.vendor == "postgresql":
                cursor.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
            if "alembic_version" not in connection.introspection.table_names(cursor):
                return ""
            cursor.execute("SELECT version_num FROM alembic_version")
            row = cursor.fetchone()
            return str(row[0]) if row else ""
    finally:
        connection.close()


def _add_indexes() -> None:
    with connections[DATABASE].cursor() as cursor:
        for index in INDEXES:
            cursor.execute(index)


def prepare_tracking(database_url: str, data_dir: Path) -> bool:
    """Create or upgrade MLflow's tables. Return True if there was anything to do.

    Raises StartError. No other process may prepare meanwhile (`setup.steps.one_at_a_time`).
    """
    file = data_dir / "mlflow.db"
    if not database_url.startswith("postgres") and not file.exists():
        half = file.with_suffix(".half")
        shutil.copyfile(template(), half)
        half.chmod(0o600)
        half.replace(file)
        return True
    requested = _expected_version()
    if present_version() == requested:
        return False
    _upgrade(store_uri(database_url, data_dir))
    _add_indexes()
    connections[DATABASE].close()
    if present_version() != requested:
        raise StartError(
            "MLflow's tables are newer than the installed MLflow; install the newer version of "
            "Slipway that created them."
        )
    return True


def create_for_tests(database_url: str) -> None:
    """Create MLflow's tables in the database of a test run, derived from `database_url`."""
    connection = connections[DATABASE]
    if connection.vendor == "sqlite":
        connection.ensure_connection()
        source = sqlite3.connect(f"file:{template()}?mode=ro", uri=True)
        try:
            source.backup(connection.connection)
        finally:
            source.close()
        return
    if not present_version():
        made = urlsplit(database_url)._replace(path=f"/{connection.settings_dict['NAME']}")
        _upgrade(store_uri(urlunsplit(made), Path()))
        _add_indexes()


def forget_connections() -> None:
    """Close open PostgreSQL connections, so that the database of a test run can be dropped."""
    connection = connections[DATABASE]
    if isinstance(connection, PostgresConnection):
        connection.close()
        connection.close_pool()
