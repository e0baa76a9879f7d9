from django.db import migrations, models


def measure_again(apps, schema_editor):
    """Have the sums of quality computed again: those of before name no task."""
    apps.get_model("monitoring", "CapturedHour").objects.update(is_stale=True)


class Migration(migrations.Migration):
    dependencies = [("monitoring", "0002_shortened")]
    operations = [
        migrations.AddField("monitor", "basis", models.JSONField(default=dict)),
        migrations.AddField("monitor", "empty_labels", models.BigIntegerField(default=0)),
        migrations.RunPython(measure_again, migrations.RunPython.noop),
    ]
