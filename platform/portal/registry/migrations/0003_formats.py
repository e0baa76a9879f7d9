"""Versions know the format of their files; those read before are MLflow models or have a fault."""

from typing import Any

from django.db import migrations, models


def _are_mlflow(apps: Any, _schema: Any) -> None:
    records = apps.get_model("registry", "VersionRecord").objects
    records.filter(read_at__isnull=False, fault="").update(format="mlflow")


class Migration(migrations.Migration):
    dependencies = [
        ("registry", "0002_told_moves"),
    ]

    operations = [
        migrations.AddField(
            model_name="versionrecord",
            name="entry",
            field=models.CharField(blank=True, max_length=1000),
        ),
        migrations.AddField(
            model_name="versionrecord",
            name="format",
            field=models.CharField(blank=True, max_length=20),
        ),
        migrations.AddField(
            model_name="versionrecord",
            name="given_format",
            field=models.CharField(blank=True, max_length=20),
        ),
        migrations.AddField(
            model_name="versionrecord",
            name="given_signature",
            field=models.JSONField(blank=True, null=True),
        ),
        migrations.RunPython(_are_mlflow, migrations.RunPython.noop, elidable=True),
    ]
