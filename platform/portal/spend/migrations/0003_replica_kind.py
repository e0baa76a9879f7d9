"""Replicas of endpoints are the kind `replica`; in what was written before they were `endpoint`."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import migrations

MESSAGE = "the ledger is only ever added to"
BY_KIND = ("Line", "MonthTotal", "DayTotal", "WorkloadTotal")


@contextmanager
def _ledger_open(schema_editor, table: str) -> Iterator[None]:
    """Let rows of the ledger be changed, in the transaction of this migration alone."""
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute(f"ALTER TABLE {table} DISABLE TRIGGER {table}_append_only")
        yield
        schema_editor.execute(f"ALTER TABLE {table} ENABLE TRIGGER {table}_append_only")
        return
    schema_editor.execute(f"DROP TRIGGER {table}_no_update")
    yield
    schema_editor.execute(
        f"CREATE TRIGGER {table}_no_update BEFORE UPDATE ON {table} "
        f"BEGIN SELECT RAISE(ABORT, '{MESSAGE}'); END"
    )


def _rename(apps, schema_editor, old: str, new: str) -> None:
    with _ledger_open(schema_editor, "spend_line"):
        for model in BY_KIND:
            apps.get_model("spend", model)._base_manager.filter(kind=old).update(kind=new)
    apps.get_model("spend", "Split").objects.filter(part="kind", key=old).update(key=new)
    apps.get_model("spend", "LabelTotal").objects.filter(part=old).update(part=new)


def forwards(apps, schema_editor) -> None:
    _rename(apps, schema_editor, "endpoint", "replica")


def backwards(apps, schema_editor) -> None:
    _rename(apps, schema_editor, "replica", "endpoint")


class Migration(migrations.Migration):
    dependencies = [("spend", "0002_ledger_not_replaced")]
    operations = [migrations.RunPython(forwards, backwards)]
