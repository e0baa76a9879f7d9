"""What an installation holds that is prepared and has people: made once a run, then copied.

Preparing one and making its people takes three seconds of a processor, and a run needs a hundred.
"""

import hashlib
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import cast
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

from portal.config.env import Env
from portal.config.setup.lock import file_lock
from portal.config.setup.state import note_prepared
from tests.folders import folder_of_the_run
from tests.prepared import FILES, settle
from tests.processes import Installation, installation

# Runs inside `manage.py shell`, one process for both: an installation is prepared, and gets people
# with tokens of every scope they may have.
_PREPARE_WITH_PEOPLE = """
import json
from django.core.management import call_command
from tests.personas import make_token, make_user
call_command("prepare", no_input=True)
print("\\nmade " + json.dumps({
    name: make_token(make_user(name, is_administrator=name == "root")) for name in %r
}))
"""
_KEPT = ("keys", *FILES)
_TOKENS = "tokens.json"


@dataclass(frozen=True)
class Template:
    """An installation to copy: `database` is its database in PostgreSQL, empty on SQLite."""

    folder: Path
    database: str

    @property
    def tokens(self) -> dict[str, str]:
        """A token of each of its people."""
        tokens: dict[str, str] = json.loads((self.folder / _TOKENS).read_text())
        return tokens


def template_with(people: tuple[str, ...]) -> Template | None:
    """Return an installation with these people; None where no tests run, as in a bench."""
    run = folder_of_the_run()
    if run is None:
        return None
    server = os.environ.get("DATABASE_URL", "")
    on_server = server.startswith("postgres")
    # A bench uses SQLite and PostgreSQL in one run: each needs a template of its own.
    digest = hashlib.sha256(repr((people, server)).encode()).hexdigest()[:8]
    folder = run / f"people-{digest}"
    database = f"slipway_{run.name[-8:]}_{digest}".replace("-", "_").lower() if on_server else ""
    folder.mkdir(parents=True, exist_ok=True)
    with file_lock(folder / "lock"):
        if not (folder / _TOKENS).exists():
            with installation(folder / "made") as made:
                tokens = make_people(made, people)
                if database:
                    _keep_database(server, made, database)
                _keep_files(made.data_dir, folder / "data")
            (folder / _TOKENS).write_text(json.dumps(tokens))
    return Template(folder, database)


def make_people(made: Installation, people: tuple[str, ...]) -> dict[str, str]:
    """Prepare an installation and make its people; returns a token of each."""
    done = made.manage("shell", "--no-imports", "-c", _PREPARE_WITH_PEOPLE % (people,))
    assert done.returncode == 0, done.stdout + done.stderr
    line = next(line for line in done.stdout.splitlines() if line.startswith("made "))
    tokens: dict[str, str] = json.loads(line.removeprefix("made "))
    return tokens


def copy_files(template: Template, made: Installation) -> None:
    """Put the files of a template into an installation, whose database is a copy already."""
    shutil.copytree(template.folder / "data", made.data_dir, dirs_exist_ok=True)
    if not template.database:
        place = SimpleNamespace(data_dir=made.data_dir, database_url="")
        note_prepared(cast(Env, place))


def _keep_files(data_dir: Path, into: Path) -> None:
    into.mkdir(mode=0o700)
    for name in _KEPT:
        source = data_dir / name
        if source.is_dir():
            shutil.copytree(source, into / name)
        elif source.exists():
            settle(source)
            shutil.copy2(source, into / name)


def _keep_database(server: str, made: Installation, name: str) -> None:
    source = urlsplit(made.environ["DATABASE_URL"]).path.lstrip("/")
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(
                sql.Identifier(name), sql.Identifier(source)
            )
        )
