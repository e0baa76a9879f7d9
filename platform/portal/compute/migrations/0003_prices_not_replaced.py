from django.db import migrations

from portal.core.append_only import RefuseReplacing


class Migration(migrations.Migration):
    dependencies = [("compute", "0002_prices_append_only")]
    operations = [RefuseReplacing("TierPrice", "prices are only ever added")]
