import django.db.models.deletion
import portal.core.clock
import portal.core.models
import portal.workloads.lifecycle
import slipway.schemas.workloads
from django.conf import settings
from django.db import migrations, models

from portal.core.create_models import CreateModels


class Migration(migrations.Migration):

    replaces = [
        ('workloads', '0001_initial'),
        ('workloads', '0002_billing'),
        ('workloads', '0003_tags'),
    ]

    initial = True

    dependencies = [
        ('accounts', '0002_audit_append_only'),
        ('compute', '0002_prices_append_only'),
    ]

    operations = [
        CreateModels([
            migrations.CreateModel(
                name='SchedulerTurn',
                fields=[
                    ('id', models.PositiveSmallIntegerField(primary_key=True, serialize=False)),
                    ('passes', models.BigIntegerField(default=0)),
                    ('charged_at', models.DateTimeField(blank=True, null=True)),
                ],
            ),
            migrations.CreateModel(
                name='Workload',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('wl', serialize=False)),
                    ('kind', models.CharField(max_length=32)),
                    ('name', models.CharField(max_length=100)),
                    ('submit_key', models.CharField(blank=True, max_length=128, null=True)),
                    ('state', models.CharField(default=slipway.schemas.workloads.WorkloadState['SUBMITTED'], max_length=16)),
                    ('epoch', models.PositiveIntegerField(default=0)),
                    ('plan', models.CharField(blank=True, default=portal.workloads.lifecycle.StopOutcome['NONE'], max_length=16)),
                    ('priority', models.SmallIntegerField(default=0)),
                    ('nodes', models.PositiveSmallIntegerField(default=1)),
                    ('procs', models.PositiveSmallIntegerField(default=1)),
                    ('cpu_millis', models.BigIntegerField()),
                    ('memory_bytes', models.BigIntegerField()),
                    ('gpus', models.IntegerField(default=0)),
                    ('gpu_model', models.CharField(blank=True, max_length=64)),
                    ('labels', models.JSONField(default=dict)),
                    ('tags', models.JSONField(default=dict)),
                    ('backend', models.CharField(default='process', max_length=16)),
                    ('spec', models.JSONField()),
                    ('snapshot', models.CharField(blank=True, max_length=64)),
                    ('environment', models.CharField(blank=True, max_length=64)),
                    ('max_attempts', models.PositiveSmallIntegerField(default=1)),
                    ('retry_on', models.JSONField(default=list)),
                    ('failures', models.PositiveSmallIntegerField(default=0)),
                    ('losses', models.PositiveSmallIntegerField(default=0)),
                    ('max_lifetime_s', models.PositiveIntegerField(blank=True, null=True)),
                    ('hold', models.CharField(blank=True, max_length=300)),
                    ('reason', models.CharField(blank=True, max_length=32)),
                    ('reason_text', models.CharField(blank=True, max_length=500)),
                    ('next_step', models.CharField(blank=True, max_length=300)),
                    ('exit_code', models.IntegerField(blank=True, null=True)),
                    ('log_tail', models.TextField(blank=True)),
                    ('rendezvous_address', models.CharField(blank=True, max_length=253)),
                    ('rendezvous_port', models.PositiveIntegerField(default=0)),
                    ('rendezvous_agent_store', models.BooleanField(default=False)),
                    ('waits_since', models.DateTimeField()),
                    ('placed_at', models.DateTimeField(blank=True, null=True)),
                    ('started_at', models.DateTimeField(blank=True, null=True)),
                    ('deadline_at', models.DateTimeField(blank=True, null=True)),
                    ('ended_at', models.DateTimeField(blank=True, null=True)),
                    ('project', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='accounts.project')),
                    ('submitted_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                    ('team', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='accounts.team')),
                    ('tier', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='compute.tier')),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                    'indexes': [models.Index(fields=['project', '-id'], name='workload_by_project'), models.Index(fields=['project', 'name', '-id'], name='workload_by_name'), models.Index(condition=models.Q(('state', 'queued')), fields=['project', '-priority', 'id'], name='workload_queue'), models.Index(condition=models.Q(('state', 'submitted')), fields=['id'], name='workload_held'), models.Index(condition=models.Q(('deadline_at__isnull', False), ('state__in', ['placed', 'running', 'starting', 'stopping'])), fields=['deadline_at'], name='workload_deadlines')],
                    'constraints': [models.CheckConstraint(condition=models.Q(('state__in', ['submitted', 'admitted', 'queued', 'placed', 'starting', 'running', 'stopping', 'succeeded', 'failed', 'stopped', 'lost'])), name='workload_known_state'), models.UniqueConstraint(condition=models.Q(('submit_key__isnull', False)), fields=('project', 'submit_key'), name='workload_once_a_key'), models.CheckConstraint(condition=models.Q(('nodes__gte', 1), ('procs__gte', 1)), name='workload_has_tasks')],
                },
            ),
            migrations.CreateModel(
                name='Task',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('task', serialize=False)),
                    ('index', models.PositiveSmallIntegerField()),
                    ('workload', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='tasks', to='workloads.workload')),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                    'constraints': [models.UniqueConstraint(fields=('workload', 'index'), name='task_once_an_index')],
                },
            ),
            migrations.CreateModel(
                name='Lease',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('lse', serialize=False)),
                    ('nano_usd_per_hour', models.BigIntegerField()),
                    ('epoch', models.PositiveIntegerField()),
                    ('index', models.PositiveSmallIntegerField()),
                    ('state', models.CharField(default=portal.workloads.lifecycle.LeaseState['GRANTED'], max_length=16)),
                    ('cpu_millis', models.BigIntegerField()),
                    ('memory_bytes', models.BigIntegerField()),
                    ('gpus', models.IntegerField(default=0)),
                    ('gpu_indices', models.JSONField(default=list)),
                    ('fair_millis', models.BigIntegerField()),
                    ('charged_to_ms', models.BigIntegerField()),
                    ('billed_to_ms', models.BigIntegerField(blank=True, null=True)),
                    ('billed_nano_usd', models.BigIntegerField(default=0)),
                    ('is_settled', models.BooleanField(default=False)),
                    ('keeps_on_fence', models.BooleanField(default=False)),
                    ('granted_at', models.DateTimeField()),
                    ('expires_at', models.DateTimeField()),
                    ('ends_by', models.DateTimeField(blank=True, null=True)),
                    ('started_at', models.DateTimeField(blank=True, null=True)),
                    ('ended_at', models.DateTimeField(blank=True, null=True)),
                    ('warm', models.BooleanField(blank=True, null=True)),
                    ('step', models.BigIntegerField(blank=True, null=True)),
                    ('first_step_at', models.DateTimeField(blank=True, null=True)),
                    ('reason', models.CharField(blank=True, max_length=32)),
                    ('message', models.CharField(blank=True, max_length=2000)),
                    ('exit_code', models.IntegerField(blank=True, null=True)),
                    ('rank_ends', models.JSONField(default=list)),
                    ('memory_peak_bytes', models.BigIntegerField(blank=True, null=True)),
                    ('memory_limit_bytes', models.BigIntegerField(blank=True, null=True)),
                    ('cpu_seconds', models.FloatField(blank=True, null=True)),
                    ('log_tail', models.TextField(blank=True)),
                    ('node', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='compute.node')),
                    ('project', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='accounts.project')),
                    ('team', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='accounts.team')),
                    ('tier', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='compute.tier')),
                    ('task', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='leases', to='workloads.task')),
                    ('workload', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='leases', to='workloads.workload')),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                    'indexes': [models.Index(fields=['workload', 'epoch'], name='lease_by_placement'), models.Index(condition=models.Q(('ended_at__isnull', True)), fields=['node'], name='lease_open_by_node'), models.Index(condition=models.Q(('ended_at__isnull', True)), fields=['expires_at'], name='lease_expiry'), models.Index(condition=models.Q(('ended_at__isnull', True)), fields=['charged_to_ms'], name='lease_charges'), models.Index(condition=models.Q(('ended_at__isnull', True), ('ends_by__isnull', False)), fields=['ends_by'], name='lease_known_ends'), models.Index(condition=models.Q(('state', 'granted')), fields=['granted_at'], name='lease_not_begun'), models.Index(fields=['project', 'granted_at'], name='lease_by_project'), models.Index(condition=models.Q(('is_settled', False)), fields=['id'], name='lease_unsettled')],
                    'constraints': [models.UniqueConstraint(condition=models.Q(('ended_at__isnull', True)), fields=('task',), name='lease_one_open_a_task'), models.UniqueConstraint(fields=('task', 'epoch'), name='lease_once_an_epoch'), models.CheckConstraint(condition=models.Q(('ended_at__isnull', True), ('ended_at__gte', models.F('granted_at')), _connector='OR'), name='lease_ends_after_it_began'), models.CheckConstraint(condition=models.Q(models.Q(('ended_at__isnull', True), ('state__in', ['granted', 'starting', 'running'])), models.Q(('ended_at__isnull', False), ('state', 'ended')), _connector='OR'), name='lease_state_says_whether_open')],
                },
            ),
            migrations.CreateModel(
                name='WorkloadEvent',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('wev', serialize=False)),
                    ('attempt', models.PositiveIntegerField(default=0)),
                    ('kind', models.CharField(max_length=32)),
                    ('message', models.CharField(max_length=2000)),
                    ('sequence', models.PositiveIntegerField(blank=True, null=True)),
                    ('task', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='workloads.task')),
                    ('workload', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='events', to='workloads.workload')),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                    'indexes': [models.Index(fields=['workload', 'id'], name='workload_story')],
                    'constraints': [models.UniqueConstraint(condition=models.Q(('sequence__isnull', False)), fields=('task', 'attempt', 'sequence'), name='workload_event_once_a_report')],
                },
            ),
            migrations.CreateModel(
                name='Share',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('shr', serialize=False)),
                    ('queued', models.IntegerField(default=0)),
                    ('running', models.IntegerField(default=0)),
                    ('cpu_millis', models.BigIntegerField(default=0)),
                    ('gpus', models.IntegerField(default=0)),
                    ('fair_millis', models.BigIntegerField(default=0)),
                    ('score', models.FloatField(default=0.0)),
                    ('project', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='accounts.project')),
                    ('team', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='accounts.team')),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                    'indexes': [models.Index(condition=models.Q(('queued__gt', 0)), fields=['score'], name='share_waiting')],
                    'constraints': [models.CheckConstraint(condition=models.Q(('team__isnull', True), ('project__isnull', True), _connector='XOR'), name='share_team_or_project'), models.UniqueConstraint(condition=models.Q(('project__isnull', False)), fields=('project',), name='share_once_a_project'), models.UniqueConstraint(condition=models.Q(('team__isnull', False)), fields=('team',), name='share_once_a_team'), models.CheckConstraint(condition=models.Q(('cpu_millis__gte', 0), ('fair_millis__gte', 0), ('gpus__gte', 0), ('queued__gte', 0), ('running__gte', 0)), name='share_counts_not_negative')],
                },
            ),
            migrations.CreateModel(
                name='UsageSample',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('measured_ms', models.BigIntegerField()),
                    ('at', models.DateTimeField()),
                    ('cpu_percent', models.FloatField()),
                    ('memory_bytes', models.BigIntegerField()),
                    ('gpu_percent', models.FloatField(blank=True, null=True)),
                    ('gpu_memory_bytes', models.BigIntegerField(blank=True, null=True)),
                    ('read_bytes', models.BigIntegerField(blank=True, null=True)),
                    ('written_bytes', models.BigIntegerField(blank=True, null=True)),
                    ('lease', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='samples', to='workloads.lease')),
                ],
                options={
                    'indexes': [models.Index(fields=['at'], name='sample_by_age')],
                    'constraints': [models.UniqueConstraint(fields=('lease', 'measured_ms'), name='sample_once_a_moment')],
                },
            ),
        ]),
    ]
