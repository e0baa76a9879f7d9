"""Create a backup of an installation, while it runs or not."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder

from portal.config.backup.archive import Writer, new_archive
from portal.config.backup.databases import SCHEMAS, Database, TableCopy, reading
from portal.config.backup.file_sets import Tree, files_of
from portal.config.backup.progress import BackupProgress
from portal.config.backup.rows import Row, Tally
from portal.config.env import Env
from portal.config.tracking_schema import present_version
from portal.core import clock
from portal.core.errors import SlipwayError
from portal.storage.backend import blob_store
from portal.storage.ports import BytesMissing, digest_in
from slipway.version import __version__

BLOBS = "storage_blob"


def database_files(env: Env) -> dict[str, Path]:
    """Return the SQLite files of the databases, by alias."""
    return {
        "default": Path(str(settings.DATABASES["default"]["NAME"])),
        "tracking": env.data_dir / "mlflow.db",
    }


def applied_migrations() -> list[str]:
    """Return the applied migrations of the tables, such as `spend/0001_initial`."""
    return sorted(
        f"{app}/{name}" for app, name in MigrationRecorder(connection).applied_migrations()
    )


def save(
    env: Env, path: Path, *, passphrase: str | None, progress: BackupProgress
) -> dict[str, Any]:
    """Write a backup to `path`, plain if `passphrase` is None, and return its manifest.

    Raises OSError, BackupError.

    The rows of each database are a consistent snapshot. Bytes are immutable, so those that rows
    refer to are present. What cannot be read is listed under `missing`, and everything else is
    saved.
    """
    manifest: dict[str, Any] = {
        "slipway": __version__,
        "made_at": clock.now().isoformat(),
        "migrations": applied_migrations(),
        "tracking_version": present_version(),
        "databases": {},
        "missing": [],
    }
    files = database_files(env)
    progress.begin("Saving")
    archive = new_archive(path, passphrase=passphrase, drafts=env.data_dir, progress=progress)
    with archive as writer:
        keys: list[tuple[str, int]] = []
        for alias, schema in SCHEMAS.items():
            with reading(env.database_url, files[alias], schema) as database:
                seen = keys if alias == "default" else []
                manifest["databases"][alias] = _save_tables(writer, alias, database, seen)
        for name, value in files_of(env.data_dir):
            writer.add_file(name, value)
        _save_blobs(writer, keys, manifest["missing"])
        _save_artifacts(writer, manifest["missing"])
        manifest["size_bytes"] = writer.size_bytes
        writer.finish(manifest)
    return manifest


def _save_tables(
    writer: Writer, alias: str, database: Database, keys: list[tuple[str, int]]
) -> dict[str, Any]:
    save_tables = {}
    for table in database.tables():
        tally = Tally(table.columns)
        rows = database.read(table)
        if table.name == BLOBS:
            rows = _noting_keys(table, rows, keys)
        writer.add_lines(f"tables/{alias}/{table.name}.jsonl.gz", tally.through(rows))
        save_tables[table.name] = {"columns": list(table.columns)} | tally.facts()
    return save_tables


def _noting_keys(
    table: TableCopy, rows: Iterator[Row], keys: list[tuple[str, int]]
) -> Iterator[Row]:
    """Record the keys of the bytes that rows refer to, and their sizes."""
    place = {name: number for number, name in enumerate(table.columns)}
    for row in rows:
        if row[place["condemned_at"]] is None:
            keys.append((row[place["key"]], row[place["size_bytes"]]))
        yield row


def _save_blobs(writer: Writer, keys: list[tuple[str, int]], missing: list[str]) -> None:
    store = blob_store()
    for key, size in keys:
        try:
            pieces = store.read(key, start=0, length=size)
            is_whole = writer.add_stream(f"blobs/{key}", pieces, sha256=digest_in(key))
        except (BytesMissing, SlipwayError):
            is_whole = False
        if not is_whole:
            missing.append(f"blobs/{key}")


def _save_artifacts(writer: Writer, missing: list[str]) -> None:
    tree = Tree(settings.SLIPWAY_ARTIFACTS_URL, _options())
    for name in tree.names():
        pieces = tree.read(name)
        try:
            first = next(pieces, b"")
        except OSError:  # removed concurrently
            missing.append(f"artifacts/{name}")
        else:
            writer.add_stream(f"artifacts/{name}", itertools.chain([first], pieces))


def _options() -> dict[str, object]:
    """Return the options to open a bucket with. A folder has none."""
    if not settings.SLIPWAY_ARTIFACTS_URL.startswith("s3:"):
        return {}
    return dict(settings.SLIPWAY_STORAGE_OPTIONS)
