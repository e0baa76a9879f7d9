from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):

    dependencies = [
        ('workloads', '0004_parts'),
    ]

    operations = [
        migrations.AddField(
            model_name='lease',
            name='active_at',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='workload',
            name='silent_since',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddIndex(
            model_name='workload',
            index=models.Index(condition=Q(silent_since__isnull=False), fields=['silent_since'], name='workload_silent'),
        ),
    ]
