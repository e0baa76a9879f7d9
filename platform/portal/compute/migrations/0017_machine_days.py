import django.db.models.deletion
from django.db import migrations, models
from django.db.models.functions import Now


def meter_from_now(apps, schema_editor):
    """Meter machines that exist from now on: the uses of their past are not known."""
    machines = apps.get_model("compute", "GroupMachine").objects.filter(ended_at__isnull=True)
    machines.filter(started_at__isnull=False).update(metered_until=Now())


class Migration(migrations.Migration):
    dependencies = [
        ("compute", "0016_conda_environments"),
    ]

    operations = [
        migrations.AddField(
            model_name="groupmachine",
            name="metered_until",
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.RunPython(meter_from_now, migrations.RunPython.noop),
        migrations.CreateModel(
            name="MachineDay",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("day", models.DateField()),
                ("use", models.CharField(max_length=8)),
                ("ms", models.BigIntegerField(default=0)),
                ("nano_usd", models.BigIntegerField(default=0)),
                (
                    "group",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="machine_days",
                        to="compute.nodegroup",
                    ),
                ),
            ],
            options={
                "indexes": [models.Index(fields=["day"], name="machine_day_by_day")],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("group", "day", "use"), name="machine_day_once"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("use__in", ["starting", "work", "idle", "grace", "ending"])
                        ),
                        name="machine_day_known_use",
                    ),
                ],
            },
        ),
    ]
