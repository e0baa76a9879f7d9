"""Name columns of endpoints and traffic in the terms of the API."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("endpoints", "0003_incidents_and_fallback")]

    operations = [
        migrations.RenameField("endpoint", "wanted", "desired_replicas"),
        migrations.RenameField("trafficminute", "turned_away", "rejected"),
    ]
