"""A database with all its tables, made once a test run and copied by whoever starts a Slipway.

Making the tables takes ten seconds of a processor, copying them a hundredth of one. It lies in the
data folder of the run, which its processes share and which goes at its end.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql

from portal.config.preparation_lock import file_lock

ROOT = Path(__file__).resolve().parents[1]
FILES = ("slipway.sqlite3", "mlflow.db")
_MAKE = """
from django.core.management import call_command
from portal.config.env import env
from portal.config.tracking_schema import prepare_tracking
call_command("migrate", interactive=False, verbosity=0)
call_command("createcachetable", verbosity=0)
prepare_tracking(env().database_url, env().data_dir)
"""


def _digest() -> str:
    found = hashlib.sha256()
    for path in sorted((ROOT / "platform" / "portal").glob("*/migrations/*.py")):
        found.update(path.name.encode() + path.read_bytes())
    return found.hexdigest()[:12]


def _make(data_dir: Path, database_url: str) -> None:
    data_dir.mkdir(parents=True, exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SLIPWAY_")}
    done = subprocess.run(
        [sys.executable, "manage.py", "shell", "--no-imports", "-c", _MAKE],
        cwd=ROOT,
        env=kept | {"SLIPWAY_DATA_DIR": str(data_dir), "DATABASE_URL": database_url},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _of_the_run() -> Path | None:
    """Return the folder of this test run; None where no tests run, as in a bench."""
    shared = os.environ.get("SLIPWAY_DATA_DIR")
    return Path(shared) / f"prepared-{_digest()}" if shared else None


def copy_tables(data_dir: Path) -> None:
    """Put SQLite databases with all their tables into an empty data folder."""
    made = _of_the_run()
    if made is None:
        return
    made.mkdir(parents=True, exist_ok=True)
    with file_lock(made / "lock"):
        if not (made / FILES[0]).exists():
            half = made / "half"
            shutil.rmtree(half, ignore_errors=True)
            _make(half, "")
            for name in reversed(FILES):
                (half / name).replace(made / name)
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in FILES:
        shutil.copyfile(made / name, data_dir / name)
        (data_dir / name).chmod(0o600)


def create_database(server: psycopg.Connection[tuple[object, ...]], url: str, name: str) -> None:
    """Create a PostgreSQL database of that name with all the tables, on the server at `url`."""
    made = _of_the_run()
    if made is None:
        server.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return
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
    server.execute(
        sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(
            sql.Identifier(name), sql.Identifier(source)
        )
    )
