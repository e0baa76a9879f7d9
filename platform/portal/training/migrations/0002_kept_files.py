import django.db.models.deletion
from django.db import migrations, models

import portal.core.clock
import portal.core.models


class Migration(migrations.Migration):

    dependencies = [
        ('training', '0001_first_release'),
    ]

    operations = [
        migrations.CreateModel(
            name='KeptFiles',
            fields=[
                ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                ('id', portal.core.models.IdField('kept', serialize=False)),
                ('attempt', models.PositiveIntegerField()),
                ('rank', models.PositiveIntegerField()),
                ('report', models.JSONField()),
                ('job', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='files', to='training.job')),
            ],
            options={
                'ordering': ['-pk'],
                'abstract': False,
                'constraints': [models.UniqueConstraint(fields=('job', 'attempt', 'rank'), name='kept_files_once_a_task')],
            },
        ),
    ]
