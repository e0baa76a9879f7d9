
import django.db.models.deletion
import portal.core.clock
import portal.core.models
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('endpoints', '0003_incidents_and_fallback'),
        ('monitoring', '0003_label_basis'),
    ]

    operations = [
        migrations.RemoveField(
            model_name='monitor',
            name='empty_labels',
        ),
        migrations.CreateModel(
            name='EmptyLabel',
            fields=[
                ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                ('id', portal.core.models.IdField('eml', serialize=False)),
                ('is_own', models.BooleanField(default=False)),
                ('reference', models.CharField(max_length=200)),
                ('row', models.PositiveIntegerField(default=0)),
                ('hour', models.DateTimeField()),
                ('endpoint', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='endpoints.endpoint')),
            ],
            options={
                'ordering': ['-pk'],
                'abstract': False,
                'indexes': [models.Index(fields=['endpoint', 'hour'], name='empty_label_by_hour')],
                'constraints': [models.UniqueConstraint(fields=('endpoint', 'is_own', 'reference', 'row'), name='empty_label_once_a_row')],
            },
        ),
    ]
