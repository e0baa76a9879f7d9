import django.db.models.deletion
import portal.core.clock
import portal.core.models
import slipway.schemas.sweeps
from django.conf import settings
from django.db import migrations, models

from portal.core.create_models import CreateModels


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('accounts', '0002_audit_append_only'),
        ('training', '0001_squashed_0005_job_python'),
    ]

    operations = [
        CreateModels([
            migrations.CreateModel(
                name='Sweep',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('swp', serialize=False)),
                    ('name', models.CharField(max_length=100)),
                    ('state', models.CharField(default=slipway.schemas.sweeps.SweepState['RUNNING'], max_length=16)),
                    ('explanation', models.CharField(blank=True, max_length=500)),
                    ('next_step', models.CharField(blank=True, max_length=300)),
                    ('job', models.JSONField()),
                    ('space', models.JSONField()),
                    ('metric', models.CharField(max_length=250)),
                    ('goal', models.CharField(max_length=3)),
                    ('algorithm', models.CharField(max_length=32)),
                    ('trials', models.PositiveIntegerField()),
                    ('parallel', models.PositiveSmallIntegerField()),
                    ('retries', models.PositiveSmallIntegerField(default=0)),
                    ('seed', models.PositiveIntegerField(default=0)),
                    ('scheduler', models.CharField(default='none', max_length=16)),
                    ('min_values', models.PositiveIntegerField(default=1)),
                    ('eta', models.PositiveSmallIntegerField(default=3)),
                    ('started', models.PositiveIntegerField(default=0)),
                    ('ended_at', models.DateTimeField(blank=True, null=True)),
                    ('created_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                    ('project', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='accounts.project')),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                    'indexes': [models.Index(fields=['project', '-id'], name='sweep_by_project'), models.Index(condition=models.Q(('state__in', ['running', 'paused'])), fields=['id'], name='sweep_open')],
                    'constraints': [models.CheckConstraint(condition=models.Q(('state__in', ['running', 'paused', 'finished', 'stopped', 'failed'])), name='sweep_known_state'), models.CheckConstraint(condition=models.Q(('started__lte', models.F('trials'))), name='sweep_started_at_most_trials'), models.CheckConstraint(condition=models.Q(('state__in', ['running', 'paused']), ('ended_at__isnull', False), _connector='XOR'), name='sweep_ended_at')],
                },
            ),
            migrations.CreateModel(
                name='Trial',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('trl', serialize=False)),
                    ('number', models.PositiveIntegerField()),
                    ('state', models.CharField(default=slipway.schemas.sweeps.TrialState['RUNNING'], max_length=16)),
                    ('values', models.JSONField()),
                    ('value', models.FloatField(blank=True, null=True)),
                    ('explanation', models.CharField(blank=True, max_length=500)),
                    ('attempt', models.PositiveSmallIntegerField(default=1)),
                    ('ended_at', models.DateTimeField(blank=True, null=True)),
                    ('job', models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='training.job')),
                    ('sweep', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='sweeps.sweep')),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                    'indexes': [models.Index(condition=models.Q(('state', slipway.schemas.sweeps.TrialState['RUNNING'])), fields=['sweep'], name='trial_running'), models.Index(fields=['sweep', 'state', 'value'], name='trial_by_value')],
                    'constraints': [models.UniqueConstraint(fields=('sweep', 'number'), name='trial_once_a_number'), models.CheckConstraint(condition=models.Q(('state__in', ['running', 'complete', 'failed', 'stopped', 'pruned'])), name='trial_known_state'), models.CheckConstraint(condition=models.Q(('state', slipway.schemas.sweeps.TrialState['PRUNED']), models.Q(('state', slipway.schemas.sweeps.TrialState['COMPLETE']), ('value__isnull', True), _connector='XOR'), _connector='OR'), name='trial_complete_with_value')],
                },
            ),
            migrations.CreateModel(
                name='TrialJob',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('trj', serialize=False)),
                    ('attempt', models.PositiveSmallIntegerField()),
                    ('job', models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='training.job')),
                    ('trial', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='sweeps.trial')),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                    'constraints': [models.UniqueConstraint(fields=('trial', 'attempt'), name='trial_job_once_an_attempt')],
                },
            ),
            migrations.CreateModel(
                name='TrialRung',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('rng', serialize=False)),
                    ('bracket', models.PositiveSmallIntegerField()),
                    ('rung', models.PositiveSmallIntegerField()),
                    ('count', models.PositiveIntegerField()),
                    ('value', models.FloatField(blank=True, null=True)),
                    ('is_cut', models.BooleanField(default=False)),
                    ('trial', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='rungs', to='sweeps.trial')),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                    'constraints': [models.UniqueConstraint(fields=('trial', 'rung'), name='trial_rung_once')],
                },
            ),
        ]),
    ]
