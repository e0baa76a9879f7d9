import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('workloads', '0003_replica_kind'),
    ]

    operations = [
        migrations.AddField(
            model_name='workload',
            name='parent',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='parts', to='workloads.workload'),
        ),
        migrations.AddField(
            model_name='workload',
            name='root',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='workloads.workload'),
        ),
    ]
