"""Name the time of the last processed predictions in the terms of the API."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("monitoring", "0005_erased_predictions")]

    operations = [migrations.RenameField("monitor", "looked_at", "processed_at")]
