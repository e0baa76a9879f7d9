import django.db.models.deletion
import portal.compute.lifecycle
import portal.core.clock
import portal.core.models
from django.conf import settings
from django.db import migrations, models

from portal.core.create_models import CreateModels


class Migration(migrations.Migration):

    replaces = [
        ('compute', '0001_initial'),
        ('compute', '0004_node_isolation'),
        ('compute', '0005_builds_of_projects'),
        ('compute', '0006_node_disk'),
        ('compute', '0007_named_environments'),
        ('compute', '0008_pythons'),
        ('compute', '0009_pools'),
    ]

    initial = True

    dependencies = [
        ('accounts', '0002_audit_append_only'),
    ]

    operations = [
        CreateModels([
            migrations.CreateModel(
                name='Environment',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('env', serialize=False)),
                    ('digest', models.CharField(max_length=64, unique=True)),
                    ('requirements', models.TextField(blank=True)),
                    ('python', models.CharField(max_length=8)),
                    ('locked', models.TextField(blank=True)),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                },
            ),
            migrations.CreateModel(
                name='Node',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('node', serialize=False)),
                    ('name', models.CharField(max_length=48)),
                    ('state', models.CharField(default=portal.compute.lifecycle.NodeState['READY'], max_length=16)),
                    ('reason', models.CharField(blank=True, max_length=200)),
                    ('token_hash', models.CharField(max_length=64, unique=True)),
                    ('boot_id', models.CharField(blank=True, max_length=64)),
                    ('agent_version', models.CharField(blank=True, max_length=32)),
                    ('address', models.CharField(max_length=253)),
                    ('backends', models.JSONField(default=list)),
                    ('labels', models.JSONField(default=dict)),
                    ('gpu_models', models.JSONField(default=list)),
                    ('cpu_millis', models.BigIntegerField()),
                    ('memory_bytes', models.BigIntegerField()),
                    ('gpus', models.IntegerField(default=0)),
                    ('used_cpu_millis', models.BigIntegerField(default=0)),
                    ('used_memory_bytes', models.BigIntegerField(default=0)),
                    ('used_gpus', models.IntegerField(default=0)),
                    ('tasks', models.IntegerField(default=0)),
                    ('cpu_percent', models.FloatField(blank=True, null=True)),
                    ('memory_used_bytes', models.BigIntegerField(blank=True, null=True)),
                    ('desired_version', models.BigIntegerField(default=1)),
                    ('last_seen_at', models.DateTimeField(blank=True, null=True)),
                    ('hearing_since', models.DateTimeField(blank=True, null=True)),
                    ('isolation', models.JSONField(db_default=[], default=list)),
                    ('mixes_projects', models.BooleanField(db_default=False, default=False)),
                    ('disk', models.JSONField(db_default={}, default=dict)),
                    ('disk_free_bytes', models.BigIntegerField(blank=True, null=True)),
                    ('pythons', models.JSONField(db_default=[], default=list)),
                    ('reserved_for', models.CharField(blank=True, db_default='', max_length=64)),
                    ('pool', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='nodes', to='compute.pool')),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                    'constraints': [models.UniqueConstraint(condition=models.Q(('state', 'removed'), _negated=True), fields=('name',), name='node_name_once'), models.CheckConstraint(condition=models.Q(('tasks__gte', 0), ('used_cpu_millis__gte', 0), ('used_gpus__gte', 0), ('used_memory_bytes__gte', 0)), name='node_gives_back_what_was_taken'), models.CheckConstraint(condition=models.Q(('state__in', ['ready', 'cordoned', 'draining', 'removed'])), name='node_known_state')],
                },
            ),
            migrations.CreateModel(
                name='JoinToken',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('join', serialize=False)),
                    ('token_hash', models.CharField(max_length=64, unique=True)),
                    ('node_name', models.CharField(blank=True, max_length=48)),
                    ('expires_at', models.DateTimeField()),
                    ('used_at', models.DateTimeField(blank=True, null=True)),
                    ('made_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                    ('node', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='compute.node')),
                    ('reserved_for', models.CharField(blank=True, db_default='', max_length=64)),
                    ('pool', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='compute.pool')),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                },
            ),
            migrations.CreateModel(
                name='Tier',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('tier', serialize=False)),
                    ('slug', models.CharField(max_length=48, unique=True)),
                    ('name', models.CharField(max_length=100)),
                    ('cpu_millis', models.BigIntegerField()),
                    ('memory_bytes', models.BigIntegerField()),
                    ('gpus', models.IntegerField(default=0)),
                    ('gpu_model', models.CharField(blank=True, max_length=64)),
                    ('labels', models.JSONField(default=dict)),
                    ('nano_usd_per_hour', models.BigIntegerField()),
                    ('is_active', models.BooleanField(default=True)),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                    'constraints': [models.CheckConstraint(condition=models.Q(('cpu_millis__gt', 0), ('gpus__gte', 0), ('memory_bytes__gt', 0), ('nano_usd_per_hour__gte', 0)), name='tier_sensible')],
                },
            ),
            migrations.CreateModel(
                name='EnvironmentBuild',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('bld', serialize=False)),
                    ('number', models.PositiveIntegerField(default=1)),
                    ('state', models.CharField(default=portal.compute.lifecycle.BuildState['BUILDING'], max_length=16)),
                    ('size_bytes', models.BigIntegerField(blank=True, null=True)),
                    ('changed_at', models.DateTimeField()),
                    ('environment', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='builds', to='compute.environment')),
                    ('node', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='compute.node')),
                    ('project', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='accounts.project')),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                    'constraints': [models.CheckConstraint(condition=models.Q(('state__in', ['building', 'ready', 'failed'])), name='build_known_state'), models.UniqueConstraint(fields=('environment', 'node', 'project'), name='build_once_an_environment_node_and_project')],
                },
            ),
            migrations.CreateModel(
                name='ProjectEnvironment',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('penv', serialize=False)),
                    ('added_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                    ('environment', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='uses', to='compute.environment')),
                    ('project', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='accounts.project')),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                    'constraints': [models.UniqueConstraint(fields=('project', 'environment'), name='environment_once_a_project')],
                },
            ),
            migrations.CreateModel(
                name='Quota',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('quo', serialize=False)),
                    ('cpu_millis', models.BigIntegerField(blank=True, null=True)),
                    ('gpus', models.IntegerField(blank=True, null=True)),
                    ('running', models.IntegerField(blank=True, null=True)),
                    ('weight', models.FloatField(default=1.0)),
                    ('project', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='accounts.project')),
                    ('team', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='accounts.team')),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                    'constraints': [models.CheckConstraint(condition=models.Q(('team__isnull', True), ('project__isnull', True), _connector='XOR'), name='quota_team_or_project'), models.UniqueConstraint(condition=models.Q(('project__isnull', False)), fields=('project',), name='quota_once_a_project'), models.UniqueConstraint(condition=models.Q(('team__isnull', False)), fields=('team',), name='quota_once_a_team'), models.CheckConstraint(condition=models.Q(('weight__gt', 0)), name='quota_weight_positive')],
                },
            ),
            migrations.CreateModel(
                name='TierPrice',
                fields=[
                    ('id', portal.core.models.IdField('price', serialize=False)),
                    ('nano_usd_per_hour', models.BigIntegerField()),
                    ('effective_from', models.DateTimeField(default=portal.core.clock.now)),
                    ('tier', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='prices', to='compute.tier')),
                ],
                options={
                    'ordering': ['-effective_from', '-id'],
                    'constraints': [models.UniqueConstraint(fields=('tier', 'effective_from'), name='tier_price_once_a_moment'), models.CheckConstraint(condition=models.Q(('nano_usd_per_hour__gte', 0)), name='tier_price_not_negative')],
                },
            ),
            migrations.CreateModel(
                name='NamedEnvironment',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('nenv', serialize=False)),
                    ('name', models.CharField(max_length=48)),
                    ('description', models.TextField(blank=True, default='')),
                    ('version', models.PositiveIntegerField(default=1)),
                    ('is_default', models.BooleanField(default=False)),
                    ('archived_at', models.DateTimeField(blank=True, null=True)),
                    ('created_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                    ('project', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='accounts.project')),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                    'constraints': [models.UniqueConstraint(fields=('project', 'name'), name='named_environment_once_a_project'), models.UniqueConstraint(condition=models.Q(('is_default', True)), fields=('project',), name='named_environment_one_default'), models.CheckConstraint(condition=models.Q(('is_default', False), ('archived_at__isnull', True), _connector='OR'), name='named_environment_default_active'), models.CheckConstraint(condition=models.Q(('version__gte', 1)), name='named_environment_version_from_one')],
                },
            ),
            migrations.CreateModel(
                name='EnvironmentVersion',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('envv', serialize=False)),
                    ('number', models.PositiveIntegerField()),
                    ('packages', models.PositiveIntegerField()),
                    ('created_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                    ('environment', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='compute.environment')),
                    ('named', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='versions', to='compute.namedenvironment')),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                    'constraints': [models.UniqueConstraint(fields=('named', 'number'), name='environment_version_once')],
                },
            ),
            migrations.CreateModel(
                name='BuildRequest',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('breq', serialize=False)),
                    ('environment', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='compute.environment')),
                    ('node', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='compute.node')),
                    ('project', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='accounts.project')),
                    ('requested_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                    'constraints': [models.UniqueConstraint(fields=('environment', 'node', 'project'), name='build_request_once_a_node_and_project')],
                },
            ),
            migrations.CreateModel(
                name='Pool',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('pool', serialize=False)),
                    ('name', models.CharField(max_length=32)),
                    ('engine', models.CharField(max_length=16)),
                    ('settings', models.JSONField(default=dict)),
                    ('most_requests', models.PositiveSmallIntegerField(default=8)),
                    ('is_open', models.BooleanField(default=True)),
                    ('is_for_all', models.BooleanField(default=True)),
                    ('problem', models.CharField(blank=True, max_length=500)),
                    ('removed_at', models.DateTimeField(blank=True, null=True)),
                    ('projects', models.ManyToManyField(related_name='+', through='compute.PoolProject', to='accounts.project')),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                    'constraints': [models.UniqueConstraint(condition=models.Q(('removed_at__isnull', True)), fields=('name',), name='pool_name_once'), models.CheckConstraint(condition=models.Q(('most_requests__gte', 1), ('most_requests__lte', 1000)), name='pool_sensible_requests')],
                },
            ),
            migrations.CreateModel(
                name='PoolProject',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('ppr', serialize=False)),
                    ('pool', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='compute.pool')),
                    ('project', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='accounts.project')),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                    'constraints': [models.UniqueConstraint(fields=('pool', 'project'), name='pool_project_once')],
                },
            ),
            migrations.CreateModel(
                name='PoolAccount',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('pacc', serialize=False)),
                    ('code', models.CharField(blank=True, max_length=64)),
                    ('asked_at', models.DateTimeField(blank=True, null=True)),
                    ('unix_name', models.CharField(blank=True, max_length=64)),
                    ('linked_at', models.DateTimeField(blank=True, null=True)),
                    ('problem', models.CharField(blank=True, max_length=300)),
                    ('pool', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='accounts', to='compute.pool')),
                    ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                    'indexes': [models.Index(condition=models.Q(('code', ''), _negated=True), fields=['pool', 'asked_at'], name='pool_account_asked')],
                    'constraints': [models.UniqueConstraint(fields=('pool', 'user'), name='pool_account_once')],
                },
            ),
        ]),
    ]
