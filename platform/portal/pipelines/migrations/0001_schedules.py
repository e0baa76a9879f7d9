import django.db.models.deletion
import portal.core.clock
import portal.core.models
import slipway.schemas.schedules
from django.conf import settings
from django.db import migrations, models

from portal.core.create_models import CreateModels


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('accounts', '0002_audit_append_only'),
        ('sweeps', '0001_first_release'),
        ('training', '0001_squashed_0005_job_python'),
    ]

    operations = [
        CreateModels([
            migrations.CreateModel(
                name='ProjectSchedule',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('sch', serialize=False)),
                    ('name', models.CharField(max_length=48)),
                    ('cron', models.CharField(max_length=100)),
                    ('zone', models.CharField(max_length=64)),
                    ('request', models.JSONField()),
                    ('missed', models.CharField(max_length=8)),
                    ('overlap', models.CharField(max_length=8)),
                    ('state', models.CharField(default=slipway.schemas.schedules.ScheduleState['ACTIVE'], max_length=8)),
                    ('explanation', models.CharField(blank=True, max_length=500)),
                    ('next_step', models.CharField(blank=True, max_length=300)),
                    ('explained_at', models.DateTimeField(blank=True, null=True)),
                    ('next_at', models.DateTimeField(blank=True, null=True)),
                    ('started', models.PositiveIntegerField(default=0)),
                    ('refusals', models.PositiveSmallIntegerField(default=0)),
                    ('deleted_at', models.DateTimeField(blank=True, null=True)),
                    ('job', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='training.job')),
                    ('owner', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                    ('paused_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                    ('project', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='accounts.project')),
                    ('sweep', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='sweeps.sweep')),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                    'indexes': [models.Index(fields=['project', '-id'], name='schedule_by_project'), models.Index(condition=models.Q(('state', slipway.schemas.schedules.ScheduleState['ACTIVE'])), fields=['next_at'], name='schedule_due')],
                    'constraints': [models.UniqueConstraint(condition=models.Q(('deleted_at__isnull', True)), fields=('project', 'name'), name='schedule_once_a_name'), models.CheckConstraint(condition=models.Q(('state__in', ['active', 'paused'])), name='schedule_known_state'), models.CheckConstraint(condition=models.Q(('missed__in', ('skip', 'once', 'all')), ('overlap__in', ('skip', 'queue', 'cancel'))), name='schedule_known_rules'), models.CheckConstraint(condition=models.Q(('job__isnull', True), ('sweep__isnull', True), _connector='XOR'), name='schedule_job_or_sweep'), models.CheckConstraint(condition=models.Q(('state', slipway.schemas.schedules.ScheduleState['ACTIVE']), ('next_at__isnull', True), _connector='XOR'), name='schedule_active_is_due'), models.CheckConstraint(condition=models.Q(('deleted_at__isnull', True), models.Q(('state', slipway.schemas.schedules.ScheduleState['ACTIVE']), _negated=True), _connector='OR'), name='schedule_deleted_is_not_active')],
                },
            ),
            migrations.CreateModel(
                name='ScheduledRun',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('srn', serialize=False)),
                    ('due_at', models.DateTimeField()),
                    ('state', models.CharField(default=slipway.schemas.schedules.ScheduledRunState['WAITING'], max_length=8)),
                    ('reason', models.CharField(blank=True, max_length=500)),
                    ('job', models.OneToOneField(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='training.job')),
                    ('requested_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                    ('schedule', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='runs', to='pipelines.projectschedule')),
                    ('sweep', models.OneToOneField(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='sweeps.sweep')),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                    'indexes': [models.Index(condition=models.Q(('state', slipway.schemas.schedules.ScheduledRunState['WAITING'])), fields=['schedule', 'due_at'], name='scheduled_run_waiting'), models.Index(condition=models.Q(('state', slipway.schemas.schedules.ScheduledRunState['STARTED'])), fields=['schedule', '-due_at'], name='scheduled_run_started'), models.Index(condition=models.Q(('state__in', ['skipped', 'refused'])), fields=['due_at'], name='scheduled_run_nothing')],
                    'constraints': [models.UniqueConstraint(fields=('schedule', 'due_at'), name='scheduled_run_once'), models.CheckConstraint(condition=models.Q(('state__in', ['waiting', 'started', 'skipped', 'refused'])), name='scheduled_run_known_state'), models.CheckConstraint(condition=models.Q(('job__isnull', True), ('sweep__isnull', True), _connector='OR'), name='scheduled_run_job_or_sweep'), models.CheckConstraint(condition=models.Q(('state', slipway.schemas.schedules.ScheduledRunState['STARTED']), models.Q(('job__isnull', True), ('sweep__isnull', True)), _connector='XOR'), name='scheduled_run_started_with_work')],
                },
            ),
        ]),
    ]
