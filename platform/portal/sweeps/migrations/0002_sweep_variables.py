from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('sweeps', '0001_first_release'),
    ]

    operations = [
        migrations.AddField(
            model_name='sweep',
            name='variables',
            field=models.JSONField(blank=True, null=True),
        ),
    ]
