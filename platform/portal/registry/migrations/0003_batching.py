from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("registry", "0002_history_append_only")]
    operations = [
        migrations.AddField(
            "versionrecord", "given_batching", models.CharField(blank=True, default="", max_length=10),
            preserve_default=False,
        ),
        migrations.AddField(
            "versionrecord", "noted_batching", models.CharField(blank=True, default="", max_length=10),
            preserve_default=False,
        ),
        migrations.AddField(
            "versionrecord", "batching_report", models.JSONField(blank=True, null=True)
        ),
        migrations.AddField(
            "versionrecord", "batching_reported_at", models.DateTimeField(blank=True, null=True)
        ),
    ]
