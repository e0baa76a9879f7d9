"""Trials of before, from which a sweep learns."""

from typing import ClassVar

import django.db.models.deletion
from django.db import migrations, models

import portal.core.clock
import portal.core.models


class Migration(migrations.Migration):
    """The table of earlier trials, and their sources."""

    dependencies: ClassVar[list[tuple[str, str]]] = [("sweeps", "0002_several_metrics")]
    operations: ClassVar[list[migrations.operations.base.Operation]] = [
        migrations.AddField("sweep", "warm_start", models.JSONField(default=list)),
        migrations.AddField(
            "sweep",
            "warm_start_note",
            models.CharField(blank=True, default="", max_length=500),
            preserve_default=False,
        ),
        migrations.CreateModel(
            name="PriorTrial",
            fields=[
                (
                    "created_at",
                    models.DateTimeField(default=portal.core.clock.now, editable=False),
                ),
                ("id", portal.core.models.IdField("ptr", serialize=False)),
                ("number", models.PositiveIntegerField()),
                ("run_id", models.CharField(max_length=32)),
                ("values", models.JSONField()),
                ("value", models.FloatField()),
                ("other_values", models.JSONField(default=list)),
                ("constraint_values", models.JSONField(default=list)),
                ("is_feasible", models.BooleanField(default=True)),
                (
                    "sweep",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="sweeps.sweep",
                    ),
                ),
            ],
            options={
                "ordering": ["-pk"],
                "abstract": False,
                "constraints": [
                    models.UniqueConstraint(
                        fields=("sweep", "number"), name="prior_trial_once_a_number"
                    )
                ],
            },
        ),
    ]
