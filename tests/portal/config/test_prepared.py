"""The preparation is left out only while nothing it looks at has changed."""

import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from portal.config.env import Env, read_env
from portal.config.setup import state
from portal.config.setup.state import is_prepared, note_prepared

pytestmark = pytest.mark.postgres


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Env:
    """Settings over a folder with a database, and a small house of their own."""
    for name in ("_PORTAL", "ROOT", "STATIC_FOLDER"):
        monkeypatch.setattr(state, name, tmp_path / name)
    for file in (
        "_PORTAL/room/migrations/0001_initial.py",
        "_PORTAL/room/static/room/page.css",
        "_PORTAL/config/settings.py",
        "_PORTAL/web/base/npm.py",
        "ROOT/requirements/portal.txt",
        "ROOT/package-lock.json",
        "ROOT/pyproject.toml",
        "STATIC_FOLDER/.stamp",
        "data/mlflow.db",
    ):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("as it was")
    made = read_env({"SLIPWAY_DATA_DIR": str(tmp_path / "data")}, tmp_path / "none")
    _sql(made, "CREATE TABLE person (name TEXT)")
    return made


def _sql(settings: Env, statement: str) -> None:
    connection = sqlite3.connect(settings.data_dir / "slipway.sqlite3")
    connection.execute(statement)
    connection.commit()
    connection.close()


def test_nothing_is_prepared_at_first_and_then_it_is(settings: Env) -> None:
    assert not is_prepared(settings)
    note_prepared(settings)
    assert is_prepared(settings)


def test_what_people_do_in_the_database_does_not_matter(settings: Env) -> None:
    note_prepared(settings)
    _sql(settings, "INSERT INTO person VALUES ('ada')")
    assert is_prepared(settings)


def test_a_change_that_still_stands_in_the_log_of_the_database_is_seen(settings: Env) -> None:
    connection = sqlite3.connect(settings.data_dir / "slipway.sqlite3")
    connection.execute("PRAGMA journal_mode = WAL")
    note_prepared(settings)
    connection.execute("CREATE TABLE dog (name TEXT)")
    connection.commit()
    assert not is_prepared(settings)
    note_prepared(settings)
    connection.close()
    assert is_prepared(settings), "the log went into the file; the tables are the same"


def _other_tables(settings: Env) -> None:
    _sql(settings, "DROP TABLE person")


def _database_put_back(settings: Env) -> None:
    database = settings.data_dir / "slipway.sqlite3"
    shutil.copy(database, settings.data_dir / "backup")
    (settings.data_dir / "backup").replace(database)


def _database_gone(settings: Env) -> None:
    (settings.data_dir / "slipway.sqlite3").unlink()


def _new_migration(settings: Env) -> None:
    (settings.data_dir.parent / "_PORTAL/room/migrations/0002_more.py").write_text("")


def _changed_style(settings: Env) -> None:
    os.utime(settings.data_dir.parent / "_PORTAL/room/static/room/page.css", (1, 1))


def _other_packages(settings: Env) -> None:
    (settings.data_dir.parent / "ROOT/requirements/portal.txt").write_text("another version")


def _collected_files_gone(settings: Env) -> None:
    (settings.data_dir.parent / "STATIC_FOLDER/.stamp").unlink()


@pytest.mark.parametrize(
    "change",
    [
        _other_tables,
        _database_put_back,
        _database_gone,
        _new_migration,
        _changed_style,
        _other_packages,
        _collected_files_gone,
    ],
)
def test_a_change_of_code_or_tables_asks_for_it_again(
    settings: Env, change: Callable[[Env], None]
) -> None:
    note_prepared(settings)
    change(settings)
    assert not is_prepared(settings)


def test_a_server_that_others_may_change_is_always_asked(settings: Env) -> None:
    remote = settings.model_copy(update={"database_url": "postgresql://db.example.org/slipway"})
    note_prepared(remote)
    assert not is_prepared(remote)
