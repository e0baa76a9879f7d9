from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('compute', '0005_builds_of_projects'),
    ]

    operations = [
        migrations.AddField(
            model_name='node',
            name='disk',
            field=models.JSONField(db_default={}, default=dict),
        ),
        migrations.AddField(
            model_name='node',
            name='disk_free_bytes',
            field=models.BigIntegerField(blank=True, null=True),
        ),
    ]
