"""Rows of the audit log, the ledger, the prices and the gate history stay as they were written.

The statements go to the database itself, on a connection without any pragma of ours.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.apps import apps
from django.db import DatabaseError, connection, models, transaction

from portal.accounts.models import AuditEvent
from portal.compute.models import Tier, TierPrice
from portal.registry.models import Evaluation, ModelLine, Move, VersionRecord
from portal.spend.models import Line, RatePrice
from tests.personas import Personas

pytestmark = pytest.mark.postgres

_AT = datetime(2030, 1, 1, tzinfo=UTC)
# The columns that may still change, by table. Everything else is written once.
TABLES: dict[str, frozenset[str]] = {
    "accounts_auditevent": frozenset(),
    "compute_tierprice": frozenset(),
    "registry_evaluation": frozenset(),
    "registry_move": frozenset({"told_at"}),
    "spend_line": frozenset(),
    "spend_rateprice": frozenset(),
}
_IS_SQLITE = connection.vendor == "sqlite"
every_table = pytest.mark.parametrize("table", TABLES)
only_sqlite = pytest.mark.skipif(not _IS_SQLITE, reason="a statement of SQLite")
only_postgres = pytest.mark.skipif(_IS_SQLITE, reason="a statement of PostgreSQL")


@pytest.fixture
def row(people: Personas, request: pytest.FixtureRequest) -> dict[str, Any]:
    """A row of the table that the test is about, by column."""
    table = request.node.callspec.params["table"]
    makers: dict[str, Callable[[Personas], models.Model]] = {
        "accounts_auditevent": lambda _: AuditEvent.objects.latest("pk"),
        "compute_tierprice": lambda _: _tier_price(),
        "registry_evaluation": _evaluation,
        "registry_move": _move,
        "spend_line": lambda _: _line(),
        "spend_rateprice": lambda _: RatePrice.objects.create(
            resource="cpu", nano_usd_per_hour=1, effective_from=_AT
        ),
    }
    makers[table](people)
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {table} LIMIT 1")  # noqa: S608
        values = cursor.fetchone()
        return dict(zip([column[0] for column in cursor.description], values, strict=True))


def _tier_price() -> TierPrice:
    tier = Tier.objects.create(
        slug="t", name="T", cpu_millis=1000, memory_bytes=1024, nano_usd_per_hour=1
    )
    return TierPrice.objects.create(tier=tier, nano_usd_per_hour=1, effective_from=_AT)


def _line() -> Line:
    return Line.objects.create(
        source="lease_x", begin_ms=1, end_ms=2, nano_usd=5, kind="job", made_at=_AT
    )


def _model(people: Personas) -> ModelLine:
    return ModelLine.objects.create(project=people.vision, name="digits", born_ms=1)


def _evaluation(people: Personas) -> Evaluation:
    record = VersionRecord.objects.create(line=_model(people), number=1)
    return Evaluation.objects.create(
        record=record, metric="accuracy", dataset="digits:1", value=0.5, recorded_by=people.alice
    )


def _move(people: Personas) -> Move:
    return Move.objects.create(
        line=_model(people), sequence=1, kind="stage", target="Production", by=people.alice
    )


def _refused(sql: str, values: list[Any] | None = None) -> str:
    with (
        pytest.raises(DatabaseError) as error,
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(sql, values or [])
    return str(error.value)


def _count(table: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT count(*) FROM {table}")  # noqa: S608
        return int(cursor.fetchone()[0])


def _insert(table: str, row: dict[str, Any], *, verb: str = "INSERT") -> tuple[str, list[Any]]:
    names = ", ".join(f'"{name}"' for name in row)
    marks = ", ".join(["%s"] * len(row))
    # As text: how sqlite3 writes a datetime is decided by whichever library was imported last.
    values = [str(value) if isinstance(value, datetime) else value for value in row.values()]
    return f"{verb} INTO {table} ({names}) VALUES ({marks})", values


def _unique_keys(table: str) -> list[set[str]]:
    """Return the sets of columns that are unique without condition, the primary key first."""
    [model] = [model for model in apps.get_models() if model._meta.db_table == table]
    columns = {field.name: str(field.column) for field in model._meta.concrete_fields}
    keys = [{columns[field.name]} for field in model._meta.concrete_fields if field.unique]
    return keys + [
        {columns[name] for name in constraint.fields}
        for constraint in model._meta.total_unique_constraints
    ]


def _fresh(value: Any) -> Any:
    """Return another value of the same type."""
    if isinstance(value, datetime):
        return value + timedelta(days=1)
    if isinstance(value, str):
        if value.startswith(("{", "[")):
            return "[1]"
        return value[:-1] + ("1" if value[-1:] != "1" else "2")
    if isinstance(value, bool):
        return not value
    return value if value is None else value + 1


def _unchanged(table: str, row: dict[str, Any]) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {table} WHERE id = %s", [row["id"]])  # noqa: S608
        return tuple(row.values()) == tuple(cursor.fetchone() or ())


@every_table
@pytest.mark.django_db
def test_no_column_may_be_changed(table: str, row: dict[str, Any]) -> None:
    for column in row.keys() - TABLES[table]:
        other = _fresh(row[column])
        if row[column] in (None, ""):
            other = "10.0.0.1" if column == "ip" else "9"
        message = _refused(f"UPDATE {table} SET {column} = %s", [other])  # noqa: S608
        assert "only" in message, column
    assert _unchanged(table, row)


@every_table
def test_no_row_may_be_removed(table: str, row: dict[str, Any]) -> None:
    before = _count(table)
    for statement in (f"DELETE FROM {table}", f"DELETE FROM {table} WHERE id IS NOT NULL"):  # noqa: S608
        assert "only" in _refused(statement)
    assert _count(table) == before


@every_table
def test_no_row_may_be_overwritten_by_an_insert(table: str, row: dict[str, Any]) -> None:
    before = _count(table)
    sql, values = _insert(table, row)
    for keys in _unique_keys(table):
        columns = ", ".join(keys)
        _refused(f"{sql} ON CONFLICT ({columns}) DO UPDATE SET id = NULL", values)
    assert _count(table) == before
    assert _unchanged(table, row)


@only_sqlite
@every_table
@pytest.mark.parametrize("verb", ["REPLACE", "INSERT OR REPLACE", "INSERT OR FAIL"])
def test_no_row_may_be_replaced(table: str, row: dict[str, Any], verb: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA recursive_triggers")
        assert cursor.fetchone() == (0,)
    before = _count(table)
    for keys in _unique_keys(table):
        other = {name: row[name] if name in keys else _fresh(row[name]) for name in row}
        other |= {name: row[name] for name in row if name.endswith("_id")}
        _refused(*_insert(table, other, verb=verb))
        assert _unchanged(table, row), keys
    assert _count(table) == before


@only_sqlite
@every_table
def test_no_row_may_be_replaced_by_its_hidden_number(table: str, row: dict[str, Any]) -> None:
    before = _count(table)
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT rowid FROM {table} WHERE id = %s", [row["id"]])  # noqa: S608
        [number] = cursor.fetchone()
    other = {name: _fresh(value) for name, value in row.items() if not name.endswith("_id")}
    other |= {name: row[name] for name in row if name.endswith("_id")} | {"rowid": number}
    if isinstance(row["id"], int):
        other["id"] = row["id"]
    _refused(*_insert(table, other, verb="REPLACE"))
    assert _unchanged(table, row)
    assert "only" in _refused(f"UPDATE OR REPLACE {table} SET rowid = rowid + 1")  # noqa: S608
    assert _count(table) == before


@only_postgres
@every_table
def test_the_table_may_not_be_emptied(table: str, row: dict[str, Any]) -> None:
    connection.check_constraints()  # or PostgreSQL refuses for what is pending
    for statement in (f"TRUNCATE {table}", f"TRUNCATE {table} RESTART IDENTITY CASCADE"):
        assert "only" in _refused(statement)
    assert _unchanged(table, row)


@only_postgres
@every_table
def test_no_row_may_be_merged_over(table: str, row: dict[str, Any]) -> None:
    for action in ("DELETE", "UPDATE SET id = NULL"):
        message = _refused(
            f"MERGE INTO {table} USING (SELECT * FROM {table}) AS old "  # noqa: S608
            f"ON {table}.id = old.id WHEN MATCHED THEN {action}"
        )
        assert "only" in message
    assert _unchanged(table, row)


@every_table
def test_rows_are_still_added(table: str, row: dict[str, Any]) -> None:
    before = _count(table)
    other = {name: value if name.endswith("_id") else _fresh(value) for name, value in row.items()}
    with connection.cursor() as cursor:
        cursor.execute(*_insert(table, other))
    assert _count(table) == before + 1


def test_a_move_may_still_be_marked_as_synced(people: Personas) -> None:
    move = _move(people)
    assert Move.objects.filter(pk=move.pk).update(told_at=_AT) == 1


@pytest.mark.django_db
def test_every_table_whose_triggers_refuse_changes_is_walked() -> None:
    with connection.cursor() as cursor:
        if _IS_SQLITE:
            cursor.execute("SELECT tbl_name FROM sqlite_master WHERE type = 'trigger'")
        else:
            cursor.execute("SELECT tgrelid::regclass::text FROM pg_trigger WHERE NOT tgisinternal")
        assert {name for (name,) in cursor.fetchall() if "." not in name} == TABLES.keys()
