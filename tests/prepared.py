"""A database with all its tables, made once and copied by whoever needs one.

Making the tables takes ten seconds of a processor, copying them a hundredth of one. On SQLite they
are kept from run to run, in `.cache`, until something that makes them changes.
"""

import contextlib
import hashlib
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql

from portal.config.setup.lock import file_lock
from tests.folders import folder_of_the_run

ROOT = Path(__file__).resolve().parents[1]
FILES = ("slipway.sqlite3", "mlflow.db")
_MAKE = """
from django.core.management import call_command
from portal.config.backends.sqlite.files import allow_creation
from portal.config.env import env
from portal.config.tracking_schema import prepare_tracking
allow_creation()
call_command("migrate", interactive=False, verbosity=0)
call_command("createcachetable", verbosity=0)
prepare_tracking(env().database_url, env().data_dir)
"""


# What decides how the tables look: migrations, what they import, and the libraries' own.
_MAKERS = ("*/migrations/*.py", "core/*.py", "*/lifecycle.py", "*/models/*.py")


def _digest() -> str:
    digest = hashlib.sha256()
    portal = ROOT / "platform" / "portal"
    files = {path for pattern in _MAKERS for path in portal.glob(pattern)}
    for path in (*sorted(files), ROOT / "requirements" / "portal.txt", Path(__file__)):
        digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def _make(data_dir: Path, database_url: str) -> None:
    data_dir.mkdir(parents=True, exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SLIPWAY_")}
    done = subprocess.run(
        [sys.executable, "manage.py", "shell", "--no-imports", "-c", _MAKE],
        cwd=ROOT,
        env=kept
        | {
            "SLIPWAY_DATA_DIR": str(data_dir),
            "SLIPWAY_ENV_FILE": os.devnull,
            "DATABASE_URL": database_url,
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def settle(database: Path) -> None:
    """Leave everything in the one file, so that it can be read without writing beside it."""
    with contextlib.closing(sqlite3.connect(database)) as made:
        made.execute("PRAGMA journal_mode=DELETE")


def _of_the_run() -> Path | None:
    """Return the folder of this test run; None where no tests run, as in a bench."""
    shared = folder_of_the_run()
    return shared / f"prepared-{_digest()}" if shared else None


def _sqlite_files() -> Path:
    """Return the folder with SQLite databases that have all their tables."""
    cache = ROOT / ".cache"
    made = cache / f"tables-{_digest()}"
    cache.mkdir(exist_ok=True)
    with file_lock(cache / "tables.lock"):
        if not made.exists():
            for old in cache.glob("tables-*"):
                shutil.rmtree(old, ignore_errors=True)
            half, whole = cache / "tables-half", cache / "tables-whole"
            shutil.rmtree(half, ignore_errors=True)
            _make(half, "")
            whole.mkdir()
            for name in FILES:
                settle(half / name)
                (half / name).replace(whole / name)
            shutil.rmtree(half)
            whole.rename(made)
    return made


def copy_tables(data_dir: Path) -> None:
    """Put SQLite databases with all their tables into an empty data folder."""
    if _of_the_run() is None:
        return
    made = _sqlite_files()
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in FILES:
        shutil.copyfile(made / name, data_dir / name)
        (data_dir / name).chmod(0o600)


def fill_in_memory(connection: sqlite3.Connection) -> None:
    """Give an empty SQLite database all tables of the portal."""
    file = _sqlite_files() / FILES[0]
    with contextlib.closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as made:
        made.backup(connection)


def create_database(
    server: psycopg.Connection[tuple[object, ...]], url: str, name: str, source: str = ""
) -> None:
    """Create a PostgreSQL database on the server at `url`: a copy of another, or all the tables."""
    made = _of_the_run()
    if made is None:
        server.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return
    source = source or template_database(server, url, made)
    order = "CREATE DATABASE {} TEMPLATE {}"
    if server.info.server_version >= 150_000:
        order += " STRATEGY FILE_COPY"  # and not page by page through the log
    server.execute(sql.SQL(order).format(sql.Identifier(name), sql.Identifier(source)))


def template_of_the_run(url: str) -> str:
    """Return the name of a PostgreSQL database with all the tables, on the server at `url`."""
    made = _of_the_run()
    assert made is not None
    with psycopg.connect(url, autocommit=True) as server:
        return template_database(server, url, made)


def template_database(server: psycopg.Connection[tuple[object, ...]], url: str, made: Path) -> str:
    """Make the database that others are copied from, unless it is there; returns its name."""
    made.mkdir(parents=True, exist_ok=True)
    source = f"slipway_{made.name.replace('-', '_')}"
    with file_lock(made / "lock"):
        if not server.execute("SELECT 1 FROM pg_database WHERE datname = %s", [source]).fetchone():
            half = f"{source}_half"
            for order in ("DROP DATABASE IF EXISTS {}", "CREATE DATABASE {}"):
                server.execute(sql.SQL(order).format(sql.Identifier(half)))
            _make(made / "postgres", urlunsplit(urlsplit(url)._replace(path=f"/{half}")))
            server.execute(
                sql.SQL("ALTER DATABASE {} RENAME TO {}").format(
                    sql.Identifier(half), sql.Identifier(source)
                )
            )
    return source
