import django.db.models.deletion
import portal.core.clock
import portal.core.models
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    # The table is that of web.0002_saved_views: only the app changes.

    dependencies = [
        ('accounts', '0004_project_network'),
        ('experiments', '0001_first_release'),
        ('web', '0003_first_steps'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.SeparateDatabaseAndState(state_operations=[
            migrations.CreateModel(
                name='SavedView',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('view', serialize=False)),
                    ('name', models.CharField(max_length=100)),
                    ('query', models.TextField(blank=True)),
                    ('experiment_id', models.PositiveIntegerField(null=True)),
                    ('project', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='accounts.project')),
                    ('saved_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ],
                options={
                    'db_table': 'web_savedview',
                    'ordering': ['-pk'],
                    'abstract': False,
                    'constraints': [models.UniqueConstraint(fields=('project', 'name'), name='view_name_once_a_project')],
                },
            ),
        ]),
    ]
