from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('sweeps', '0004_repeats'),
    ]

    operations = [
        migrations.AddField(
            model_name='sweep',
            name='variables',
            field=models.JSONField(blank=True, null=True),
        ),
    ]
