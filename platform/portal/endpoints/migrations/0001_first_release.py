import django.db.models.deletion
import portal.core.clock
import portal.core.models
import portal.endpoints.lifecycle
from django.conf import settings
from django.db import migrations, models

from portal.core.create_models import CreateModels


class Migration(migrations.Migration):

    replaces = [
        ('endpoints', '0001_initial'),
        ('endpoints', '0002_answered_days'),
        ('endpoints', '0003_capped'),
    ]

    initial = True

    dependencies = [
        ('accounts', '0002_audit_append_only'),
        ('compute', '0002_prices_append_only'),
        ('workloads', '0001_first_release'),
    ]

    operations = [
        CreateModels([
            migrations.CreateModel(
                name='Gateway',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('gw', serialize=False)),
                    ('name', models.CharField(max_length=48, unique=True)),
                    ('token_hash', models.CharField(max_length=64, unique=True)),
                    ('seen_at', models.DateTimeField(blank=True, null=True)),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                },
            ),
            migrations.CreateModel(
                name='ServingVersion',
                fields=[
                    ('id', models.PositiveSmallIntegerField(primary_key=True, serialize=False)),
                    ('version', models.BigIntegerField(default=0)),
                ],
            ),
            migrations.CreateModel(
                name='Endpoint',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('ep', serialize=False)),
                    ('name', models.CharField(max_length=48)),
                    ('state', models.CharField(default=portal.endpoints.lifecycle.EndpointState['CREATING'], max_length=16)),
                    ('reason', models.CharField(blank=True, max_length=2000)),
                    ('min_replicas', models.PositiveSmallIntegerField(default=1)),
                    ('max_replicas', models.PositiveSmallIntegerField(default=1)),
                    ('target_concurrency', models.PositiveIntegerField(default=64)),
                    ('target_queue_ms', models.FloatField(default=100.0)),
                    ('wanted', models.PositiveSmallIntegerField(default=1)),
                    ('calm_since', models.DateTimeField(blank=True, null=True)),
                    ('scaled_at', models.DateTimeField(blank=True, null=True)),
                    ('capped_needs', models.PositiveIntegerField(default=0)),
                    ('capped_why', models.CharField(blank=True, max_length=300)),
                    ('capped_eased_at', models.DateTimeField(blank=True, null=True)),
                    ('limits', models.JSONField(default=dict)),
                    ('capture', models.CharField(default='on', max_length=8)),
                    ('rules', models.JSONField(default=dict)),
                    ('made_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                    ('project', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='accounts.project')),
                    ('tier', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='compute.tier')),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                    'indexes': [models.Index(fields=['project', '-id'], name='endpoint_by_project')],
                    'constraints': [models.CheckConstraint(condition=models.Q(('state__in', ['creating', 'serving', 'paused', 'failed', 'deleting', 'deleted'])), name='endpoint_known_state'), models.CheckConstraint(condition=models.Q(('max_replicas__gte', models.F('min_replicas')), ('min_replicas__gte', 1)), name='endpoint_replica_bounds'), models.UniqueConstraint(condition=models.Q(('state', 'deleted'), _negated=True), fields=('name',), name='endpoint_name_taken')],
                },
            ),
            migrations.CreateModel(
                name='AnsweredDay',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('day', models.DateField()),
                    ('answered', models.BigIntegerField(default=0)),
                    ('endpoint', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='endpoints.endpoint')),
                ],
                options={
                    'indexes': [models.Index(fields=['day'], name='answered_by_day')],
                    'constraints': [models.UniqueConstraint(fields=('endpoint', 'day'), name='answered_once_a_day')],
                },
            ),
            migrations.CreateModel(
                name='EndpointEvent',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('epe', serialize=False)),
                    ('kind', models.CharField(max_length=32)),
                    ('message', models.CharField(max_length=2000)),
                    ('endpoint', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='events', to='endpoints.endpoint')),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                    'indexes': [models.Index(fields=['endpoint', 'id'], name='endpoint_story')],
                },
            ),
            migrations.CreateModel(
                name='EndpointKey',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('epk', serialize=False)),
                    ('name', models.CharField(max_length=100)),
                    ('sha256', models.CharField(max_length=64, unique=True)),
                    ('prefix', models.CharField(max_length=16)),
                    ('sealed', models.BinaryField(default=bytes)),
                    ('scopes', models.JSONField(default=list)),
                    ('rate_per_s', models.FloatField(blank=True, null=True)),
                    ('burst', models.PositiveIntegerField(blank=True, null=True)),
                    ('expires_at', models.DateTimeField(blank=True, null=True)),
                    ('revoked_at', models.DateTimeField(blank=True, null=True)),
                    ('endpoint', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='keys', to='endpoints.endpoint')),
                    ('made_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                    'indexes': [models.Index(condition=models.Q(('revoked_at__isnull', True)), fields=['endpoint'], name='key_in_force')],
                },
            ),
            migrations.CreateModel(
                name='GatewayProcess',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('boot_id', models.CharField(max_length=64)),
                    ('sequence', models.BigIntegerField()),
                    ('snapshot_version', models.BigIntegerField()),
                    ('seen_at', models.DateTimeField()),
                    ('last', models.JSONField(default=dict)),
                    ('gateway', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='processes', to='endpoints.gateway')),
                ],
                options={
                    'indexes': [models.Index(fields=['seen_at'], name='gateway_process_by_age')],
                    'constraints': [models.UniqueConstraint(fields=('gateway', 'boot_id'), name='gateway_process_once')],
                },
            ),
            migrations.CreateModel(
                name='Revision',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('rev', serialize=False)),
                    ('number', models.PositiveIntegerField()),
                    ('model', models.CharField(max_length=200)),
                    ('model_version', models.CharField(max_length=100)),
                    ('served', models.JSONField()),
                    ('signature', models.JSONField(blank=True, null=True)),
                    ('state', models.CharField(default=portal.endpoints.lifecycle.RevisionState['PREPARING'], max_length=16)),
                    ('reason', models.CharField(blank=True, max_length=2000)),
                    ('weight', models.PositiveIntegerField(default=0)),
                    ('shadow_percent', models.FloatField(default=0.0)),
                    ('failures', models.PositiveSmallIntegerField(default=0)),
                    ('next_start_at', models.DateTimeField(blank=True, null=True)),
                    ('ready_at', models.DateTimeField(blank=True, null=True)),
                    ('standby_since', models.DateTimeField(blank=True, null=True)),
                    ('answered', models.BigIntegerField(default=0)),
                    ('refused', models.BigIntegerField(default=0)),
                    ('failed', models.BigIntegerField(default=0)),
                    ('mirrored', models.BigIntegerField(default=0)),
                    ('differed', models.BigIntegerField(default=0)),
                    ('shadow_failed', models.BigIntegerField(default=0)),
                    ('counts', models.JSONField(default=list)),
                    ('endpoint', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='revisions', to='endpoints.endpoint')),
                    ('made_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                    'constraints': [models.CheckConstraint(condition=models.Q(('state__in', ['preparing', 'ready', 'serving', 'standby', 'retired', 'failed'])), name='revision_known_state'), models.UniqueConstraint(fields=('endpoint', 'number'), name='revision_once_a_number')],
                },
            ),
            migrations.CreateModel(
                name='Replica',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('rpl', serialize=False)),
                    ('state', models.CharField(default=portal.endpoints.lifecycle.ReplicaState['STARTING'], max_length=16)),
                    ('reason', models.CharField(blank=True, max_length=2000)),
                    ('secret', models.BinaryField()),
                    ('address', models.CharField(blank=True, max_length=300)),
                    ('load_ms', models.FloatField(blank=True, null=True)),
                    ('warm_ms', models.FloatField(blank=True, null=True)),
                    ('forward_ms', models.FloatField(blank=True, null=True)),
                    ('ready_at', models.DateTimeField(blank=True, null=True)),
                    ('reported_at', models.DateTimeField(blank=True, null=True)),
                    ('draining_since', models.DateTimeField(blank=True, null=True)),
                    ('dropped_version', models.BigIntegerField(blank=True, null=True)),
                    ('endpoint', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='replicas', to='endpoints.endpoint')),
                    ('workload', models.OneToOneField(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='workloads.workload')),
                    ('revision', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='replicas', to='endpoints.revision')),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                    'indexes': [models.Index(fields=['revision', 'state'], name='replica_by_revision'), models.Index(condition=models.Q(('state__in', ['stopped', 'failed']), _negated=True), fields=['endpoint'], name='replica_alive')],
                    'constraints': [models.CheckConstraint(condition=models.Q(('state__in', ['starting', 'loading', 'warming', 'ready', 'draining', 'stopping', 'stopped', 'failed'])), name='replica_known_state'), models.CheckConstraint(condition=models.Q(models.Q(('state', 'ready'), _negated=True), models.Q(('address', ''), _negated=True), _connector='OR'), name='replica_ready_somewhere')],
                },
            ),
            migrations.CreateModel(
                name='Rollout',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('rol', serialize=False)),
                    ('plan', models.CharField(max_length=16)),
                    ('steps', models.JSONField()),
                    ('state', models.CharField(default=portal.endpoints.lifecycle.RolloutState['PLANNED'], max_length=16)),
                    ('step', models.PositiveSmallIntegerField(default=0)),
                    ('step_since', models.DateTimeField(blank=True, null=True)),
                    ('baseline', models.JSONField(default=dict)),
                    ('reason', models.CharField(blank=True, max_length=2000)),
                    ('ended_at', models.DateTimeField(blank=True, null=True)),
                    ('endpoint', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='rollouts', to='endpoints.endpoint')),
                    ('made_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                    ('previous', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='endpoints.revision')),
                    ('revision', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='endpoints.revision')),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                    'constraints': [models.CheckConstraint(condition=models.Q(('state__in', ['planned', 'running', 'baking', 'done', 'rolling_back', 'rolled_back'])), name='rollout_known_state'), models.UniqueConstraint(condition=models.Q(('state__in', ['baking', 'planned', 'rolling_back', 'running'])), fields=('endpoint',), name='rollout_one_at_a_time')],
                },
            ),
            migrations.CreateModel(
                name='TrafficMinute',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('revision_id', models.CharField(blank=True, max_length=32)),
                    ('at', models.DateTimeField()),
                    ('answered', models.BigIntegerField(default=0)),
                    ('refused', models.BigIntegerField(default=0)),
                    ('failed', models.BigIntegerField(default=0)),
                    ('turned_away', models.BigIntegerField(default=0)),
                    ('unauthorized', models.BigIntegerField(default=0)),
                    ('sum_ms', models.FloatField(default=0.0)),
                    ('queue_ms', models.FloatField(default=0.0)),
                    ('counts', models.JSONField(default=list)),
                    ('endpoint', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='endpoints.endpoint')),
                ],
                options={
                    'indexes': [models.Index(fields=['at'], name='traffic_by_age')],
                    'constraints': [models.UniqueConstraint(fields=('endpoint', 'revision_id', 'at'), name='traffic_once_a_minute')],
                },
            ),
        ]),
    ]
