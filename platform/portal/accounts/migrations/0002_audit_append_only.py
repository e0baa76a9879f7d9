"""The database itself refuses to change or delete what the audit log says."""

from django.db import migrations

SQLITE = [
    """
    CREATE TRIGGER accounts_audit_no_{what} BEFORE {WHAT} ON accounts_auditevent
    BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END
    """
]
POSTGRES = """
CREATE FUNCTION accounts_audit_refuse() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'the audit log is append-only'; END $$;
CREATE TRIGGER accounts_audit_append_only BEFORE UPDATE OR DELETE ON accounts_auditevent
FOR EACH ROW EXECUTE FUNCTION accounts_audit_refuse();
"""


def add(apps, schema_editor):
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute(POSTGRES)
        return
    for what in ("update", "delete"):
        schema_editor.execute(SQLITE[0].format(what=what, WHAT=what.upper()))


def remove(apps, schema_editor):
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute("DROP TRIGGER accounts_audit_append_only ON accounts_auditevent")
        schema_editor.execute("DROP FUNCTION accounts_audit_refuse()")
        return
    for what in ("update", "delete"):
        schema_editor.execute(f"DROP TRIGGER accounts_audit_no_{what}")


class Migration(migrations.Migration):
    # Those of oauth2_provider alter many fields: early on, while few models have to follow.
    dependencies = [
        ("accounts", "0001_squashed_0006_notes"),
        ("oauth2_provider", "0021_translatable_field_labels"),
    ]
    operations = [migrations.RunPython(add, remove)]
