from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('datasets', '0001_initial'),
    ]

    operations = [
        migrations.AddField(
            model_name='version',
            name='settings',
            field=models.JSONField(default=dict),
        ),
        migrations.AddField(
            model_name='datatable',
            name='schema',
            field=models.JSONField(default=dict),
        ),
    ]
