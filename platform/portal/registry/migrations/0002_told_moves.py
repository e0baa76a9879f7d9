"""Moves note when MLflow's tables followed; those of before were told as they were written."""

from typing import Any

from django.db import migrations, models
from django.db.models import F


def _are_told(apps: Any, _schema: Any) -> None:
    apps.get_model("registry", "Move").objects.update(told_at=F("created_at"))


class Migration(migrations.Migration):
    dependencies = [
        ("registry", "0001_initial"),
    ]

    operations = [
        migrations.AddField(
            model_name="move",
            name="told_at",
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.RunPython(_are_told, migrations.RunPython.noop, elidable=True),
        migrations.AddIndex(
            model_name="move",
            index=models.Index(
                condition=models.Q(("told_at__isnull", True)),
                fields=["line"],
                name="move_untold",
            ),
        ),
    ]
