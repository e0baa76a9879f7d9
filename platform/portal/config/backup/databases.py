"""The two databases of an installation, each read as a snapshot, filled in a transaction.

Both are accessed without Django: a backup holds tables, not models, and a snapshot must not take
the lock under which SQLite writes.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any, Protocol

import psycopg
from django.apps import apps
from django.db import models
from psycopg import sql

from portal.config.backup.errors import BackupError
from portal.config.backup.rows import Row, bytes_in, plain
from portal.config.databases import SCHEMA

# Created again at every start: the record of migrations, and caches.
LEFT_OUT = frozenset({"django_migrations", "core_cache", "alembic_version"})
_BATCH = 500


@dataclass(frozen=True)
class TableCopy:
    """A table, its columns by name, its JSON columns, and the tables to restore before it.

    The last are the tables it refers to by foreign keys that are checked immediately, as MLflow's.
    """

    name: str
    columns: tuple[str, ...]
    json_columns: frozenset[str]
    comes_after: frozenset[str]


class Database(Protocol):
    """One database of an installation."""

    def tables(self) -> list[TableCopy]:
        """Return its tables, each after those it refers to."""

    def read(self, table: TableCopy) -> Iterator[Row]:
        """Yield the rows of a table in the format of a backup."""

    def empty(self, tables: Sequence[TableCopy]) -> None:
        """Remove all rows."""

    def write(self, table: TableCopy, columns: Sequence[str], rows: Iterable[Row]) -> None:
        """Insert rows of a backup, whose values are in the order of `columns`."""

    def check_references(self) -> None:
        """Raise BackupError, or an error of the database, when a row refers to a missing one."""


def _in_order(values: dict[str, TableCopy]) -> list[TableCopy]:
    graph = {
        name: sorted((table.comes_after & values.keys()) - {name}) for name, table in values.items()
    }
    return [values[name] for name in TopologicalSorter(dict(sorted(graph.items()))).static_order()]


def _json_of_models() -> dict[str, frozenset[str]]:
    """Return the JSON columns by table. SQLite itself declares them as text."""
    result: dict[str, frozenset[str]] = {}
    for model in apps.get_models(include_auto_created=True):
        options = model._meta  # noqa: SLF001 - the documented way to a model's fields
        json = (each for each in options.concrete_fields if isinstance(each, models.JSONField))
        result[options.db_table] = frozenset(str(each.column) for each in json)
    return result


class SqliteTables:
    """An SQLite file."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._json = _json_of_models()

    def tables(self) -> list[TableCopy]:
        """Return its tables, each after those it refers to."""
        named = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        values: dict[str, TableCopy] = {}
        for (name,) in self._connection.execute(named).fetchall():
            if name not in LEFT_OUT:
                values[name] = self._table(name)
        return _in_order(values)

    def _table(self, name: str) -> TableCopy:
        columns = self._connection.execute(f"PRAGMA table_info({_quoted(name)})").fetchall()
        declared = {column[1] for column in columns if str(column[2]).upper() == "JSON"}
        return TableCopy(
            name,
            tuple(sorted(column[1] for column in columns)),
            frozenset(declared) | self._json.get(name, frozenset()),
            frozenset(),  # references are checked when everything is written
        )

    def read(self, table: TableCopy) -> Iterator[Row]:
        """Yield the rows of a table in the format of a backup."""
        names = ", ".join(map(_quoted, table.columns))
        flags = [name in table.json_columns for name in table.columns]
        for row in self._connection.execute(f"SELECT {names} FROM {_quoted(table.name)}"):  # noqa: S608
            yield [plain(value, is_json=flag) for value, flag in zip(row, flags, strict=True)]

    def empty(self, tables: Sequence[TableCopy]) -> None:
        """Remove all rows."""
        for table in reversed(tables):
            cursor = self._connection.execute(f"SELECT 1 FROM {_quoted(table.name)} LIMIT 1")  # noqa: S608
            if cursor.fetchone():  # an append-only table refuses a DELETE even if it is empty
                self._connection.execute(f"DELETE FROM {_quoted(table.name)}")  # noqa: S608

    def write(self, table: TableCopy, columns: Sequence[str], rows: Iterable[Row]) -> None:
        """Insert rows of a backup."""
        names = ", ".join(map(_quoted, columns))
        marks = ", ".join("?" * len(columns))
        statement = f"INSERT INTO {_quoted(table.name)} ({names}) VALUES ({marks})"  # noqa: S608
        self._connection.executemany(statement, (list(map(_for_sqlite, row)) for row in rows))

    def check_references(self) -> None:
        """Raise BackupError when a row refers to a missing one."""
        if self._connection.execute("PRAGMA foreign_key_check").fetchone():
            raise BackupError("a row of the backup refers to a row that is missing from it")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _for_sqlite(value: Any) -> Any:
    data = bytes_in(value)
    return value if data is None else data


class PostgresTables:
    """One schema of a PostgreSQL database."""

    def __init__(self, connection: psycopg.Connection[Any], schema: str) -> None:
        self._connection = connection
        self._schema = schema

    def tables(self) -> list[TableCopy]:
        """Return its tables, each after those it refers to."""
        columns: dict[str, list[tuple[str, str]]] = {}
        for table, column, kind in self._connection.execute(
            "SELECT c.table_name, c.column_name, c.data_type FROM information_schema.columns c "
            "JOIN information_schema.tables t USING (table_schema, table_name) "
            "WHERE c.table_schema = %s AND t.table_type = 'BASE TABLE' "
            "AND c.is_generated = 'NEVER' "
            "ORDER BY c.table_name, c.ordinal_position",
            [self._schema],
        ):
            columns.setdefault(str(table), []).append((str(column), str(kind)))
        referred: dict[str, set[str]] = {}
        for table, target in self._connection.execute(
            "SELECT k.conrelid::regclass::text, k.confrelid::regclass::text FROM pg_constraint k "
            "JOIN pg_namespace n ON n.oid = k.connamespace "
            "WHERE k.contype = 'f' AND NOT k.condeferrable AND n.nspname = %s",
            [self._schema],
        ):
            referred.setdefault(_bare(table), set()).add(_bare(target))
        table_copies_by_name = {
            name: TableCopy(
                name,
                tuple(sorted(column for column, _ in listed)),
                frozenset(column for column, kind in listed if kind in ("json", "jsonb")),
                frozenset(referred.get(name, ())),
            )
            for name, listed in columns.items()
            if name not in LEFT_OUT
        }
        return _in_order(table_copies_by_name)

    def _identifier(self, table: TableCopy) -> sql.Identifier:
        return sql.Identifier(self._schema, table.name)

    def read(self, table: TableCopy) -> Iterator[Row]:
        """Yield the rows of a table in the format of a backup."""
        flags = [name in table.json_columns for name in table.columns]
        names = sql.SQL(", ").join(
            # As text: decoded, a JSON null could not be distinguished from SQL's NULL.
            sql.SQL("{}::text").format(sql.Identifier(name)) if flag else sql.Identifier(name)
            for name, flag in zip(table.columns, flags, strict=True)
        )
        with self._connection.cursor(name=f"backup_{table.name}"[:60]) as cursor:
            cursor.itersize = _BATCH
            cursor.execute(sql.SQL("SELECT {} FROM {}").format(names, self._identifier(table)))
            for row in cursor:
                yield [plain(value, is_json=flag) for value, flag in zip(row, flags, strict=True)]

    def empty(self, tables: Sequence[TableCopy]) -> None:
        """Remove all rows."""
        for table in reversed(tables):
            self._connection.execute(sql.SQL("DELETE FROM {}").format(self._identifier(table)))

    def write(self, table: TableCopy, columns: Sequence[str], rows: Iterable[Row]) -> None:
        """Insert rows of a backup. PostgreSQL parses each value by the type of its column."""
        names = sql.SQL(", ").join(map(sql.Identifier, columns))
        statement = sql.SQL("COPY {} ({}) FROM STDIN").format(self._identifier(table), names)
        with self._connection.cursor() as cursor, cursor.copy(statement) as copy:
            for row in rows:
                copy.write_row(list(map(_for_postgres, row)))
        self._move_sequences(table)

    def check_references(self) -> None:
        """Raise an error of the database when a row refers to a missing one."""
        self._connection.execute("SET CONSTRAINTS ALL IMMEDIATE")

    def _move_sequences(self, table: TableCopy) -> None:
        for column in table.columns:
            row = self._connection.execute(
                "SELECT pg_get_serial_sequence(%s, %s)",
                [f'"{self._schema}"."{table.name}"', column],
            ).fetchone()
            if row and row[0]:
                self._connection.execute(
                    sql.SQL("SELECT setval(%s, COALESCE(MAX({}), 0) + 1, false) FROM {}").format(
                        sql.Identifier(column), self._identifier(table)
                    ),
                    [row[0]],
                )


def _bare(name: str) -> str:
    return name.rpartition(".")[2].strip('"')


def _for_postgres(value: Any) -> Any:
    content = bytes_in(value)
    if content is not None:
        return content
    return value if value is None or isinstance(value, str) else str(value)


def _is_postgres(url: str) -> bool:
    return url.startswith("postgres")


@contextmanager
def reading(url: str, file: Path, schema: str = "public") -> Iterator[Database]:
    """Yield a consistent snapshot of a database. The reader blocks nobody."""
    if _is_postgres(url):
        with psycopg.connect(url) as server:
            server.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            server.read_only = True
            server.execute("SET TIME ZONE 'UTC'")
            yield PostgresTables(server, schema)
        return
    connection = sqlite3.connect(f"file:{file}?mode=ro", uri=True, isolation_level=None, timeout=20)
    try:
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        yield SqliteTables(connection)
    finally:
        connection.close()


@contextmanager
def writing(url: str, file: Path, schema: str = "public") -> Iterator[Database]:
    """Yield a database to fill in one transaction, rolled back by any error."""
    if _is_postgres(url):
        with psycopg.connect(url) as server:
            server.execute("SET TIME ZONE 'UTC'")
            yield PostgresTables(server, schema)
        return
    connection = sqlite3.connect(file, isolation_level=None, timeout=20)
    try:
        connection.execute("PRAGMA foreign_keys=OFF")
        connection.execute("BEGIN IMMEDIATE")
        yield SqliteTables(connection)
        connection.execute("COMMIT")
    finally:
        connection.close()


SCHEMAS = {"default": "public", "tracking": SCHEMA}
