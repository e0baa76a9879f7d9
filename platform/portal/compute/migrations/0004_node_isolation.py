from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('compute', '0003_prices_not_replaced'),
    ]

    operations = [
        migrations.AddField(
            model_name='node',
            name='isolation',
            field=models.JSONField(db_default=[], default=list),
        ),
        migrations.AddField(
            model_name='node',
            name='mixes_projects',
            field=models.BooleanField(db_default=False, default=False),
        ),
    ]
