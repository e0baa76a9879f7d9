from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ("accounts", "0001_initial"),
        ("experiments", "0001_tracking_tables"),
    ]

    operations = [
        migrations.CreateModel(
            name="StoredArtifacts",
            fields=[
                ("project", models.OneToOneField(on_delete=models.deletion.CASCADE, primary_key=True, related_name="+", serialize=False, to="accounts.project")),
                ("size_bytes", models.BigIntegerField()),
                ("measured_at", models.DateTimeField()),
            ],
        ),
    ]
