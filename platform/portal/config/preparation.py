"""What must be true before the processes start: tables, static files. Safe to run again."""

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from django.conf import settings
from django.contrib.staticfiles.finders import get_finders
from django.core.management import call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from portal.config.supervision.errors import StartError

_ADVISORY_LOCK = 5_117_001
_STAMP = ".stamp"


@contextlib.contextmanager
def one_at_a_time(data_dir: Path) -> Iterator[None]:
    """Keep two preparations apart: on one data folder by a file, on one PostgreSQL by a lock."""
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(data_dir / "prepare.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with _advisory_lock():
            yield
    finally:
        os.close(descriptor)


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


def migrate() -> int:
    """Bring the tables up to date; returns how many migrations ran."""
    executor = MigrationExecutor(connection)
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
                found = Path(storage.path(path)).stat()
            except FileNotFoundError:
                raise StartError(
                    f"the web page's file {path} is not installed; run make setup and start again."
                ) from None
            digest.update(f"{path}\0{found.st_size}\0{found.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def collect_static() -> bool:
    """Collect, hash and compress the static files if any changed; tells whether it had to."""
    stamp = Path(settings.STATIC_ROOT) / _STAMP
    fingerprint = _static_fingerprint()
    if stamp.exists() and stamp.read_text() == fingerprint:
        return False
    call_command("collectstatic", interactive=False, clear=True, verbosity=0)
    stamp.write_text(fingerprint)
    return True
