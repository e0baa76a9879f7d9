from django.db import migrations

from portal.core.append_only import RefuseReplacing


class Migration(migrations.Migration):
    dependencies = [("accounts", "0002_audit_append_only")]
    operations = [RefuseReplacing("AuditEvent", "the audit log is append-only")]
