from django.db import migrations

from portal.core.append_only import RefuseReplacing

MESSAGE = "the ledger is only ever added to"


class Migration(migrations.Migration):
    dependencies = [("spend", "0001_squashed_0003_replica_kind")]
    operations = [RefuseReplacing("Line", MESSAGE), RefuseReplacing("RatePrice", MESSAGE)]
