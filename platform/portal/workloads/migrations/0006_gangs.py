from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('workloads', '0005_silence'),
    ]

    operations = [
        migrations.AddField(
            model_name='lease',
            name='address',
            field=models.CharField(blank=True, db_default='', default='', max_length=253),
        ),
        migrations.AddField(
            model_name='lease',
            name='ports',
            field=models.JSONField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='lease',
            name='ranks_connected',
            field=models.BooleanField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='workload',
            name='ranks_apart',
            field=models.BooleanField(db_default=False, default=False),
        ),
    ]
