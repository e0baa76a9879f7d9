import django.db.models.deletion
import portal.core.clock
import portal.core.models
import portal.registry.models.lines
import slipway.schemas.registry
from django.conf import settings
from django.db import migrations, models

from portal.core.create_models import CreateModels


class Migration(migrations.Migration):

    replaces = [
        ('registry', '0001_first_release'),
        ('registry', '0003_batching'),
    ]

    initial = True

    dependencies = [
        ('accounts', '0002_audit_append_only'),
        ('storage', '0001_initial'),
    ]

    operations = [
        CreateModels([
            migrations.CreateModel(
                name='ModelLine',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('model', serialize=False)),
                    ('name', models.CharField(max_length=256)),
                    ('born_ms', models.BigIntegerField()),
                    ('sequence', models.PositiveIntegerField(default=0)),
                    ('card', models.TextField(blank=True)),
                    ('project', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='accounts.project')),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                    'constraints': [models.UniqueConstraint(fields=('project', 'name', 'born_ms'), name='model_line_once_a_birth')],
                },
            ),
            migrations.CreateModel(
                name='Move',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('move', serialize=False)),
                    ('sequence', models.PositiveIntegerField()),
                    ('kind', models.CharField(max_length=5)),
                    ('target', models.CharField(max_length=256)),
                    ('version', models.PositiveIntegerField(blank=True, null=True)),
                    ('replaced', models.PositiveIntegerField(blank=True, null=True)),
                    ('stage_before', models.CharField(blank=True, max_length=40)),
                    ('gates', models.JSONField(default=list)),
                    ('override_reason', models.TextField(blank=True)),
                    ('told_at', models.DateTimeField(blank=True, null=True)),
                    ('by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                    ('line', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='moves', to='registry.modelline')),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                    'indexes': [models.Index(condition=models.Q(('told_at__isnull', True)), fields=['line'], name='move_untold')],
                    'constraints': [models.UniqueConstraint(fields=('line', 'sequence'), name='move_once_a_place')],
                },
            ),
            migrations.CreateModel(
                name='ProjectRules',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('rules', serialize=False)),
                    ('stages', models.JSONField(default=portal.registry.models.lines.default_stages)),
                    ('gates', models.JSONField(default=list)),
                    ('revision', models.PositiveIntegerField(default=0)),
                    ('project', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='accounts.project')),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                },
            ),
            migrations.CreateModel(
                name='VersionRecord',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('mver', serialize=False)),
                    ('number', models.PositiveIntegerField()),
                    ('stage', models.CharField(blank=True, max_length=40)),
                    ('given_format', models.CharField(blank=True, max_length=20)),
                    ('given_signature', models.JSONField(blank=True, null=True)),
                    ('read_at', models.DateTimeField(blank=True, null=True)),
                    ('fault', models.CharField(blank=True, max_length=500)),
                    ('format', models.CharField(blank=True, max_length=20)),
                    ('entry', models.CharField(blank=True, max_length=1000)),
                    ('flavors', models.JSONField(default=list)),
                    ('signature', models.JSONField(blank=True, null=True)),
                    ('example', models.TextField(blank=True)),
                    ('files', models.JSONField(default=list)),
                    ('hashed_at', models.DateTimeField(blank=True, null=True)),
                    ('author', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                    ('line', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='versions', to='registry.modelline')),
                    ('given_batching', models.CharField(blank=True, max_length=10)),
                    ('noted_batching', models.CharField(blank=True, max_length=10)),
                    ('batching_report', models.JSONField(blank=True, null=True)),
                    ('batching_reported_at', models.DateTimeField(blank=True, null=True)),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                    'indexes': [models.Index(fields=['line', 'stage'], name='version_record_by_stage')],
                    'constraints': [models.UniqueConstraint(fields=('line', 'number'), name='version_record_once_a_number')],
                },
            ),
            migrations.CreateModel(
                name='PromotionRequest',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('preq', serialize=False)),
                    ('kind', models.CharField(max_length=5)),
                    ('target', models.CharField(max_length=256)),
                    ('state', models.CharField(default=slipway.schemas.registry.RequestState['OPEN'], max_length=10)),
                    ('note', models.TextField(blank=True)),
                    ('decision_note', models.TextField(blank=True)),
                    ('decided_at', models.DateTimeField(blank=True, null=True)),
                    ('decided_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                    ('requested_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                    ('record', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='requests', to='registry.versionrecord')),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                    'constraints': [models.UniqueConstraint(condition=models.Q(('state__in', ['open', 'approved'])), fields=('record', 'kind', 'target'), name='request_once_a_target')],
                },
            ),
            migrations.CreateModel(
                name='GoldenRecord',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('gold', serialize=False)),
                    ('rows', models.PositiveIntegerField()),
                    ('absolute_tolerance', models.FloatField()),
                    ('relative_tolerance', models.FloatField()),
                    ('file', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='storage.storedfile')),
                    ('recorded_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                    ('record', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='goldens', to='registry.versionrecord')),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                },
            ),
            migrations.CreateModel(
                name='Evaluation',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('eval', serialize=False)),
                    ('metric', models.CharField(max_length=250)),
                    ('dataset', models.CharField(max_length=100)),
                    ('value', models.FloatField(blank=True, null=True)),
                    ('not_finite', models.CharField(blank=True, max_length=4)),
                    ('run_id', models.CharField(blank=True, max_length=32)),
                    ('workload_id', models.CharField(blank=True, max_length=32)),
                    ('recorded_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                    ('record', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='evaluations', to='registry.versionrecord')),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                    'indexes': [models.Index(fields=['record', 'metric', 'dataset'], name='evaluation_by_metric')],
                },
            ),
        ]),
    ]
