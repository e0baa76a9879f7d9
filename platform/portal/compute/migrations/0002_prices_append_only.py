"""The database itself refuses to change or delete what a tier has cost."""

from django.db import migrations

SQLITE = """
CREATE TRIGGER compute_price_no_{what} BEFORE {WHAT} ON compute_tierprice
BEGIN SELECT RAISE(ABORT, 'prices are only ever added'); END
"""
POSTGRES = """
CREATE FUNCTION compute_price_refuse() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'prices are only ever added'; END $$;
CREATE TRIGGER compute_price_append_only BEFORE UPDATE OR DELETE ON compute_tierprice
FOR EACH ROW EXECUTE FUNCTION compute_price_refuse();
"""


def add(apps, schema_editor):
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute(POSTGRES)
        return
    for what in ("update", "delete"):
        schema_editor.execute(SQLITE.format(what=what, WHAT=what.upper()))


def remove(apps, schema_editor):
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute("DROP TRIGGER compute_price_append_only ON compute_tierprice")
        schema_editor.execute("DROP FUNCTION compute_price_refuse()")
        return
    for what in ("update", "delete"):
        schema_editor.execute(f"DROP TRIGGER compute_price_no_{what}")


class Migration(migrations.Migration):
    dependencies = [("compute", "0001_squashed_0009_pools")]
    operations = [migrations.RunPython(add, remove)]
