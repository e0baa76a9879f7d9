"""Preparation before the processes start: tables, static files. Safe to run again."""

import contextlib
import hashlib
from collections.abc import Iterator
from pathlib import Path

import psycopg
from django.conf import settings
from django.contrib.staticfiles.finders import get_finders
from django.core.management import call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader

from portal.config.setup.lock import file_lock
from portal.config.supervision.errors import StartError

_ADVISORY_LOCK = 5_117_001
_PATIENCE_S = 5
_STAMP = ".stamp"


@contextlib.contextmanager
def setup_lock(data_dir: Path) -> Iterator[None]:
    """Exclude concurrent preparations: by a file lock on the data folder and a PostgreSQL lock."""
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    with file_lock(data_dir / "prepare.lock"), _advisory_lock():
        yield


@contextlib.contextmanager
def _advisory_lock() -> Iterator[None]:
    if connection.vendor != "postgresql":
        yield
        return
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_lock(%s)", [_ADVISORY_LOCK])
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_unlock(%s)", [_ADVISORY_LOCK])


def check_server(url: str) -> None:
    """Raise StartError with PostgreSQL's own message. The pool would only report a timeout."""
    if connection.vendor != "postgresql":
        return
    try:
        psycopg.connect(url, connect_timeout=_PATIENCE_S).close()
    except psycopg.Error as error:
        words = " ".join(str(error).split())
        raise StartError(f"the database cannot be used ({words}); check DATABASE_URL.") from None


def _check_replaced(loader: MigrationLoader) -> None:
    """Raise StartError when only some of the migrations that one replaces are applied.

    Django would silently leave the tables as they are.
    """
    for (app, _), migration in loader.replacements.items():
        missing = [name for name in migration.replaces if name not in loader.applied_migrations]
        if missing and len(missing) < len(migration.replaces):
            raise StartError(
                f"the tables of {app} are older than its migration {missing[0][1]}; run the last "
                "version that has that migration once, then this one."
            )


def migrate() -> int:
    """Apply pending migrations and return how many ran. Raise StartError."""
    executor = MigrationExecutor(connection)
    _check_replaced(executor.loader)
    executor.check_replacements()
    plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
    if plan:
        call_command("migrate", interactive=False, verbosity=0)
    call_command("createcachetable", verbosity=0)
    return len(plan)


def _static_fingerprint() -> str:
    digest = hashlib.sha256()
    for finder in get_finders():
        for path, storage in finder.list([]):
            try:
                status = Path(storage.path(path)).stat()
            except FileNotFoundError:
                raise StartError(
                    f"the web page's file {path} is not installed; run make setup and start again."
                ) from None
            digest.update(f"{path}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def collect_static() -> bool:
    """Collect, hash and compress the static files if any changed. Return True if it had to.

    Older files stay: a page that is open, or another installation of this folder, may name them.
    """
    root = Path(settings.STATIC_ROOT)
    stamp = root / _STAMP
    root.mkdir(parents=True, exist_ok=True)
    with file_lock(root / ".lock"):
        fingerprint = _static_fingerprint()
        if stamp.exists() and stamp.read_text() == fingerprint:
            return False
        call_command("collectstatic", interactive=False, verbosity=0)
        stamp.write_text(fingerprint)
        return True
