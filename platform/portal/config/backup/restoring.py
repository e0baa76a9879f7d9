"""Fill an empty installation from a backup, and prove that it is equal."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.conf import settings

from portal.accounts.models import User
from portal.config.backup.archive import Archive, BackupError, open_archive
from portal.config.backup.databases import SCHEMAS, Database, Table, writing
from portal.config.backup.places import Tree, put_file
from portal.config.backup.rows import Row, Tally
from portal.config.backup.saving import applied_migrations, database_files
from portal.config.env import Env
from portal.config.tracking_schema import present_version


def restore(env: Env, path: Path) -> dict[str, Any]:
    """Fill this installation from the backup at `path`; returns the backup's manifest.

    Its tables must be made already and hold nobody. Rows come last and the portal's own at the very
    end, in one transaction, so that after a crash in between the same command can be given again.
    Raises BackupError when the backup is damaged, of another version, or the place not empty.
    """
    with open_archive(path) as archive:
        names = archive.verify()
        _check_fits(archive.manifest)
        if User.objects.exists():
            raise BackupError(
                "this installation has people in it, and a backup is restored into an empty one "
                "only; set SLIPWAY_DATA_DIR (and DATABASE_URL) to a new place"
            )
        _put_bytes(env, archive, names)
        files = database_files(env)
        for alias in reversed(SCHEMAS):
            with writing(env.database_url, files[alias], SCHEMAS[alias]) as database:
                _fill(archive, alias, database)
        return archive.manifest


def check(path: Path) -> dict[str, Any]:
    """Read a whole backup and compare every digest; returns its manifest. Raises BackupError."""
    with open_archive(path) as archive:
        archive.verify()
        return archive.manifest


def _check_fits(manifest: dict[str, Any]) -> None:
    if manifest["migrations"] != applied_migrations():
        raise BackupError(
            f"the backup is of Slipway {manifest['slipway']}, whose tables are not those of this "
            "version; restore it with that version, then upgrade"
        )
    if manifest["tracking_version"] != present_version():
        raise BackupError(
            "the backup is of another version of MLflow's tables than the one installed; "
            f"restore it with Slipway {manifest['slipway']}, then upgrade"
        )


def _put_bytes(env: Env, archive: Archive, names: list[str]) -> None:
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
            put_file(env.data_dir, name, archive.pieces(name))


def _fill(archive: Archive, alias: str, database: Database) -> None:
    """Write all tables of a database and read them again; raises BackupError at a difference."""
    said: dict[str, Any] = archive.manifest["databases"][alias]
    tables = database.tables()
    there = {table.name: table for table in tables}
    if there.keys() != said.keys():
        odd = ", ".join(sorted(there.keys() ^ said.keys()))
        raise BackupError(f"the backup and this version differ in the tables {odd}")
    database.empty(tables)
    for table in tables:
        if list(table.columns) != said[table.name]["columns"]:
            raise BackupError(f"the backup and this version differ in the columns of {table.name}")
        database.write(table, table.columns, _rows(archive, alias, table))
    for table in tables:
        tally = Tally(table.columns)
        for row in database.read(table):
            tally.add(row)
        found = {"columns": list(table.columns)} | tally.facts()
        if found != said[table.name]:
            raise BackupError(
                f"{table.name} was not restored as it was saved ({found['rows']} rows for "
                f"{said[table.name]['rows']}); nothing was changed"
            )


def _rows(archive: Archive, alias: str, table: Table) -> Iterator[Row]:
    yield from archive.lines(f"tables/{alias}/{table.name}.jsonl.gz")
