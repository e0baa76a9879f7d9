import django.db.models.deletion
import portal.core.clock
import portal.core.models
from django.conf import settings
from django.db import migrations, models

from portal.core.create_models import CreateModels


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('accounts', '0002_audit_append_only'),
    ]

    operations = [
        CreateModels([
            migrations.CreateModel(
                name='Report',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('rpt', serialize=False)),
                    ('title', models.CharField(max_length=100)),
                    ('version', models.PositiveIntegerField(default=1)),
                    ('saved_at', models.DateTimeField(default=portal.core.clock.now)),
                    ('share_hash', models.CharField(blank=True, default='', max_length=64)),
                    ('shared_at', models.DateTimeField(blank=True, null=True)),
                    ('created_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                    ('project', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='accounts.project')),
                    ('saved_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                    ('shared_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                    'indexes': [models.Index(fields=['project', '-id'], name='report_by_project')],
                    'constraints': [models.CheckConstraint(condition=models.Q(('version__gte', 1)), name='report_version_from_one'), models.UniqueConstraint(condition=models.Q(('share_hash', ''), _negated=True), fields=('share_hash',), name='report_share_once')],
                },
            ),
            migrations.CreateModel(
                name='ReportVersion',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('rptv', serialize=False)),
                    ('number', models.PositiveIntegerField()),
                    ('title', models.CharField(max_length=100)),
                    ('blocks', models.JSONField(default=list)),
                    ('report', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='versions', to='reports.report')),
                    ('saved_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                    'constraints': [models.UniqueConstraint(fields=('report', 'number'), name='report_version_once')],
                },
            ),
        ]),
    ]
