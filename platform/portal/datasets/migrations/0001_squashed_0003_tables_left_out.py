import django.db.models.deletion
import portal.core.clock
import portal.core.models
import slipway.schemas.datasets
from django.conf import settings
from django.db import migrations, models

from portal.core.create_models import CreateModels


class Migration(migrations.Migration):

    replaces = [
        ('datasets', '0001_initial'),
        ('datasets', '0002_table_schemas'),
        ('datasets', '0003_tables_left_out'),
    ]

    initial = True

    dependencies = [
        ('accounts', '0002_audit_append_only'),
        ('storage', '0001_initial'),
        ('workloads', '0001_squashed_0008_pools'),
    ]

    operations = [
        CreateModels([
            migrations.CreateModel(
                name='Dataset',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('ds', serialize=False)),
                    ('name', models.CharField(max_length=63)),
                    ('description', models.TextField(blank=True)),
                    ('last_number', models.PositiveIntegerField(default=0)),
                    ('deleted_at', models.DateTimeField(blank=True, null=True)),
                    ('created_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                    ('project', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='accounts.project')),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                    'constraints': [models.UniqueConstraint(condition=models.Q(('deleted_at__isnull', True)), fields=('project', 'name'), name='dataset_once_a_name')],
                },
            ),
            migrations.CreateModel(
                name='Piece',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('piece', serialize=False)),
                    ('sha256', models.CharField(max_length=64)),
                    ('size_bytes', models.PositiveIntegerField()),
                    ('offset', models.PositiveBigIntegerField(default=0)),
                    ('used_at', models.DateTimeField(default=portal.core.clock.now)),
                    ('file', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='storage.storedfile')),
                    ('project', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='accounts.project')),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                    'indexes': [models.Index(fields=['used_at'], name='piece_by_use')],
                    'constraints': [models.UniqueConstraint(fields=('project', 'sha256'), name='piece_once_a_project')],
                },
            ),
            migrations.CreateModel(
                name='Version',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('dsv', serialize=False)),
                    ('number', models.PositiveIntegerField(blank=True, null=True)),
                    ('state', models.CharField(default=slipway.schemas.datasets.VersionState['DRAFT'], max_length=10)),
                    ('note', models.TextField(blank=True)),
                    ('digest', models.CharField(blank=True, max_length=64)),
                    ('files', models.PositiveIntegerField(default=0)),
                    ('size_bytes', models.BigIntegerField(default=0)),
                    ('rows', models.BigIntegerField(blank=True, null=True)),
                    ('allow_bad_rows', models.BooleanField(default=False)),
                    ('bad_rows', models.BigIntegerField(default=0)),
                    ('problems', models.JSONField(default=list)),
                    ('reason', models.CharField(blank=True, max_length=500)),
                    ('same_as', models.PositiveIntegerField(blank=True, null=True)),
                    ('touched_at', models.DateTimeField(default=portal.core.clock.now)),
                    ('checker_until', models.DateTimeField(blank=True, null=True)),
                    ('checks', models.PositiveSmallIntegerField(default=0)),
                    ('ready_at', models.DateTimeField(blank=True, null=True)),
                    ('deleted_at', models.DateTimeField(blank=True, null=True)),
                    ('created_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                    ('dataset', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='versions', to='datasets.dataset')),
                    ('settings', models.JSONField(default=dict)),
                    ('tables_left_out', models.PositiveIntegerField(db_default=0, default=0)),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                    'indexes': [models.Index(fields=['state', 'touched_at'], name='version_by_state')],
                    'constraints': [models.UniqueConstraint(fields=('dataset', 'number'), name='version_once_a_number')],
                },
            ),
            migrations.CreateModel(
                name='Entry',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('dsf', serialize=False)),
                    ('path', models.CharField(max_length=1000)),
                    ('key', models.CharField(max_length=64)),
                    ('index', models.PositiveIntegerField(default=0)),
                    ('digest', models.CharField(blank=True, max_length=64)),
                    ('size_bytes', models.BigIntegerField()),
                    ('piece', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='datasets.piece')),
                    ('version', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='entries', to='datasets.version')),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                    'indexes': [models.Index(fields=['version', 'path'], name='entry_by_path')],
                    'constraints': [models.UniqueConstraint(fields=('version', 'key', 'index'), name='entry_once_a_place')],
                },
            ),
            migrations.CreateModel(
                name='DataTable',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('dst', serialize=False)),
                    ('name', models.CharField(max_length=1000)),
                    ('format', models.CharField(max_length=10)),
                    ('paths', models.JSONField(default=list)),
                    ('files', models.PositiveIntegerField()),
                    ('bad_rows', models.BigIntegerField(default=0)),
                    ('note', models.CharField(blank=True, max_length=500)),
                    ('statistics', models.JSONField(default=dict)),
                    ('preview', models.JSONField(default=list)),
                    ('version', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='tables', to='datasets.version')),
                    ('schema', models.JSONField(default=dict)),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                },
            ),
            migrations.CreateModel(
                name='DatasetUse',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('dsu', serialize=False)),
                    ('run_id', models.CharField(blank=True, max_length=64)),
                    ('declared', models.BooleanField(default=False)),
                    ('by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                    ('workload', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='workloads.workload')),
                    ('version', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='uses', to='datasets.version')),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                    'indexes': [models.Index(fields=['workload'], name='use_by_workload'), models.Index(fields=['run_id'], name='use_by_run')],
                    'constraints': [models.UniqueConstraint(condition=models.Q(('workload__isnull', False)), fields=('version', 'workload', 'run_id'), name='use_once_a_job'), models.UniqueConstraint(condition=models.Q(('workload__isnull', True)), fields=('version', 'run_id'), name='use_once_a_run')],
                },
            ),
        ]),
    ]
