"""Several metrics, and constraints."""

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    """Columns of metrics and constraints, with defaults for sweeps that have neither."""

    dependencies: ClassVar[list[tuple[str, str]]] = [("sweeps", "0001_first_release")]
    operations: ClassVar[list[migrations.operations.base.Operation]] = [
        migrations.AddField("sweep", "other_metrics", models.JSONField(default=list)),
        migrations.AddField("sweep", "constraints", models.JSONField(default=list)),
        migrations.AddField("trial", "other_values", models.JSONField(default=list)),
        migrations.AddField("trial", "constraint_values", models.JSONField(default=list)),
        migrations.AddField("trial", "is_feasible", models.BooleanField(default=True)),
    ]
