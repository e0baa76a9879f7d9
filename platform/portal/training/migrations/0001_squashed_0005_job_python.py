import django.db.models.deletion
import portal.core.clock
import portal.core.models
from django.conf import settings
from django.db import migrations, models

from portal.core.create_models import CreateModels


class Migration(migrations.Migration):

    replaces = [
        ('training', '0001_first_release'),
        ('training', '0002_kept_files'),
        ('training', '0003_job_requirements_file'),
        ('training', '0004_named_environments'),
        ('training', '0005_job_python'),
    ]

    initial = True

    dependencies = [
        ('accounts', '0002_audit_append_only'),
        ('compute', '0002_prices_append_only'),
        ('storage', '0001_initial'),
        ('workloads', '0001_squashed_0008_pools'),
    ]

    operations = [
        CreateModels([
            migrations.CreateModel(
                name='Snapshot',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('snap', serialize=False)),
                    ('digest', models.CharField(max_length=64)),
                    ('files', models.PositiveIntegerField()),
                    ('scripts', models.JSONField(default=list)),
                    ('marks', models.BinaryField(default=bytes)),
                    ('created_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                    ('file', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='storage.storedfile')),
                    ('project', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='accounts.project')),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                    'constraints': [models.UniqueConstraint(fields=('project', 'digest'), name='snapshot_once_a_project')],
                },
            ),
            migrations.CreateModel(
                name='Job',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('workload', models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, primary_key=True, related_name='+', serialize=False, to='workloads.workload')),
                    ('script', models.CharField(max_length=500)),
                    ('args', models.JSONField(default=list)),
                    ('params', models.JSONField(default=dict)),
                    ('strategy', models.CharField(blank=True, max_length=200)),
                    ('strategy_taken', models.CharField(blank=True, max_length=200)),
                    ('strategy_reason', models.CharField(blank=True, max_length=2000)),
                    ('requirements', models.TextField(blank=True)),
                    ('git', models.JSONField(blank=True, null=True)),
                    ('datasets', models.JSONField(default=list)),
                    ('cloned_from', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='training.job')),
                    ('snapshot', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='training.snapshot')),
                    ('finds_requirements', models.BooleanField(default=False)),
                    ('requirements_file', models.CharField(blank=True, default='', max_length=500)),
                    ('environment_version', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='compute.environmentversion')),
                    ('python', models.CharField(blank=True, db_default='', default='', max_length=8)),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                },
            ),
            migrations.CreateModel(
                name='Checkpoint',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('ckpt', serialize=False)),
                    ('step', models.BigIntegerField()),
                    ('size_bytes', models.BigIntegerField()),
                    ('attempt', models.PositiveIntegerField()),
                    ('is_on_node', models.BooleanField(default=True)),
                    ('copied_at', models.DateTimeField(blank=True, null=True)),
                    ('file', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='storage.storedfile')),
                    ('job', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='checkpoints', to='training.job')),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                    'constraints': [models.UniqueConstraint(fields=('job', 'step'), name='checkpoint_once_a_step'), models.UniqueConstraint(condition=models.Q(('file__isnull', False)), fields=('job',), name='checkpoint_one_copy_a_job'), models.CheckConstraint(condition=models.Q(('is_on_node', True), ('file__isnull', False), _connector='OR'), name='checkpoint_somewhere')],
                },
            ),
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
        ]),
    ]
