"""The database itself refuses to change or delete what was billed and what prices were."""

from django.db import migrations

TABLES = ("spend_line", "spend_rateprice")
SQLITE = """
CREATE TRIGGER {table}_no_{what} BEFORE {WHAT} ON {table}
BEGIN SELECT RAISE(ABORT, 'the ledger is only ever added to'); END
"""
POSTGRES_FUNCTION = """
CREATE FUNCTION spend_refuse() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'the ledger is only ever added to'; END $$;
"""
POSTGRES = """
CREATE TRIGGER {table}_append_only BEFORE UPDATE OR DELETE ON {table}
FOR EACH ROW EXECUTE FUNCTION spend_refuse();
"""


def add(apps, schema_editor):
    is_postgres = schema_editor.connection.vendor == "postgresql"
    if is_postgres:
        schema_editor.execute(POSTGRES_FUNCTION)
    for table in TABLES:
        if is_postgres:
            schema_editor.execute(POSTGRES.format(table=table))
            continue
        for what in ("update", "delete"):
            schema_editor.execute(SQLITE.format(table=table, what=what, WHAT=what.upper()))


def remove(apps, schema_editor):
    is_postgres = schema_editor.connection.vendor == "postgresql"
    for table in TABLES:
        if is_postgres:
            schema_editor.execute(f"DROP TRIGGER {table}_append_only ON {table}")
            continue
        for what in ("update", "delete"):
            schema_editor.execute(f"DROP TRIGGER {table}_no_{what}")
    if is_postgres:
        schema_editor.execute("DROP FUNCTION spend_refuse()")


class Migration(migrations.Migration):
    dependencies = [("spend", "0001_initial")]
    operations = [migrations.RunPython(add, remove)]
