"""Trials that run again with other seeds."""

from typing import ClassVar

import django.db.models.deletion
from django.db import migrations, models

import portal.core.clock
import portal.core.models


class Migration(migrations.Migration):
    """The table of repeats."""

    dependencies: ClassVar[list[tuple[str, str]]] = [("sweeps", "0003_warm_start")]
    operations: ClassVar[list[migrations.operations.base.Operation]] = [
        migrations.CreateModel(
            name="TrialRepeat",
            fields=[
                (
                    "created_at",
                    models.DateTimeField(default=portal.core.clock.now, editable=False),
                ),
                ("id", portal.core.models.IdField("trpt", serialize=False)),
                ("parameter", models.CharField(max_length=250)),
                ("seed", models.PositiveIntegerField()),
                (
                    "job",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="training.job",
                    ),
                ),
                (
                    "trial",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="sweeps.trial",
                    ),
                ),
            ],
            options={
                "ordering": ["-pk"],
                "abstract": False,
                "constraints": [
                    models.UniqueConstraint(
                        fields=("trial", "seed"), name="trial_repeat_once_a_seed"
                    )
                ],
            },
        ),
    ]
