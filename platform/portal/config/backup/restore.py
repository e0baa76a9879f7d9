"""Restore a backup into an empty installation, and verify that it is equal."""

import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
from django.conf import settings

from portal.accounts.models import User
from portal.config.backup.archive import Archive, open_archive
from portal.config.backup.create import applied_migrations, database_files
from portal.config.backup.databases import SCHEMAS, Database, TableCopy, writing
from portal.config.backup.errors import BackupError
from portal.config.backup.file_sets import Tree, restore_file
from portal.config.backup.progress import BackupProgress
from portal.config.backup.rows import Row, Tally, is_row
from portal.config.env import Env
from portal.config.tracking_schema import present_version
from slipway.sanitize import visible


def restore(
    env: Env, path: Path, *, passphrase: str | None, progress: BackupProgress
) -> dict[str, Any]:
    """Restore the backup at `path` into this installation and return the backup's manifest.

    The tables must exist and hold no users. The whole backup is verified before anything is
    written. Rows are written first and committed last, the portal's own at the very end, so after
    a crash in between the same command can be run again. Raises BackupError when the backup is
    damaged, of another version, or the installation is not empty.
    """
    if User.objects.exists():
        raise BackupError(
            "this installation has users, and a backup can only be restored into an empty one; "
            "set SLIPWAY_DATA_DIR (and DATABASE_URL) to a new location"
        )
    files = database_files(env)
    with open_archive(path, passphrase) as archive:
        _check_fits(archive.manifest)
        progress.begin("Checking", archive.manifest["members"])
        names = archive.verify(progress)
        with ExitStack() as stack:
            databases = {
                alias: stack.enter_context(writing(env.database_url, files[alias], schema))
                for alias, schema in SCHEMAS.items()
            }
            for alias, database in databases.items():
                _check_rows(archive, alias, database)
            for alias, database in databases.items():
                _fill(archive, alias, database)
            progress.begin("Restoring", archive.manifest["members"])
            _restore_bytes(env, archive, names, progress)
        return archive.manifest


def check(path: Path, *, passphrase: str | None, progress: BackupProgress) -> dict[str, Any]:
    """Verify every digest of a backup and return its manifest. Raise BackupError."""
    with open_archive(path, passphrase) as archive:
        progress.begin("Checking", archive.manifest["members"])
        archive.verify(progress)
        return archive.manifest


def _check_fits(manifest: dict[str, Any]) -> None:
    version = visible(manifest["slipway"])
    if manifest["migrations"] != applied_migrations():
        raise BackupError(
            f"the backup is from Slipway {version}, which has a different database schema; "
            "restore it with that version, then upgrade"
        )
    if manifest["tracking_version"] != present_version():
        raise BackupError(
            "the backup is from a different version of MLflow's database schema than the one "
            f"installed; restore it with Slipway {version}, then upgrade"
        )


def _restore_bytes(env: Env, archive: Archive, names: list[str], progress: BackupProgress) -> None:
    options: dict[str, object] = dict(settings.SLIPWAY_STORAGE_OPTIONS)
    trees = {
        kind: Tree(url, options if url.startswith("s3:") else {})
        for kind, url in (
            ("blobs", settings.SLIPWAY_STORAGE_URL),
            ("artifacts", settings.SLIPWAY_ARTIFACTS_URL),
        )
    }
    for name in names:
        kind, _, rest = name.partition("/")
        if kind in trees:
            trees[kind].write(rest, archive.pieces(name))
        elif kind == "data":
            restore_file(env.data_dir, name, archive.pieces(name))
        progress.add(archive.size_of(name))


def _check_rows(archive: Archive, alias: str, database: Database) -> None:
    """Raise BackupError unless the rows are those of the manifest and fit into these tables."""
    stated: dict[str, Any] = archive.manifest["databases"][alias]
    tables = {table.name: table for table in database.tables()}
    if tables.keys() != stated.keys():
        odd = ", ".join(sorted(visible(name) for name in tables.keys() ^ stated.keys()))
        raise BackupError(f"the backup and this version differ in the tables {odd}")
    for name, table in tables.items():
        if list(table.columns) != stated[name]["columns"]:
            raise BackupError(f"the backup and this version differ in the columns of {name}")
        tally = Tally(table.columns)
        for row in _rows(archive, alias, table):
            if not is_row(row, len(table.columns)) or tally.rows >= stated[name]["rows"]:
                raise BackupError(f"{name} does not contain the rows that the backup lists")
            tally.add(row)
        if _facts(table, tally) != stated[name]:
            raise BackupError(f"{name} does not contain the rows that the backup lists")


def _fill(archive: Archive, alias: str, database: Database) -> None:
    """Write all tables of a database and read them again. Raise BackupError at a difference."""
    stated: dict[str, Any] = archive.manifest["databases"][alias]
    tables = database.tables()
    database.empty(tables)
    table = None
    try:
        for table in tables:
            database.write(table, table.columns, _rows(archive, alias, table))
        database.check_references()
    except (sqlite3.Error, psycopg.Error, OverflowError, ValueError):
        raise BackupError(
            f"the database rejects rows of the backup (up to {table.name if table else alias}); "
            "nothing was changed"
        ) from None
    for table in tables:
        tally = Tally(table.columns)
        for row in database.read(table):
            tally.add(row)
        if _facts(table, tally) != stated[table.name]:
            raise BackupError(
                f"{table.name} was not restored completely ({tally.rows} rows for "
                f"{stated[table.name]['rows']}); nothing was changed"
            )


def _facts(table: TableCopy, tally: Tally) -> dict[str, Any]:
    return {"columns": list(table.columns)} | tally.facts()


def _rows(archive: Archive, alias: str, table: TableCopy) -> Iterator[Row]:
    yield from archive.lines(f"tables/{alias}/{table.name}.jsonl.gz")
