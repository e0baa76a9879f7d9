import django.db.models.deletion
import portal.compute.lifecycle
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
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                    'constraints': [models.UniqueConstraint(fields=('environment', 'node'), name='build_once_an_environment_and_node'), models.CheckConstraint(condition=models.Q(('state__in', ['building', 'ready', 'failed'])), name='build_known_state')],
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
        ]),
    ]
