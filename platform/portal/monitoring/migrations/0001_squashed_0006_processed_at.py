import django.db.models.deletion
import portal.core.clock
import portal.core.models
import portal.monitoring.lifecycle
from django.conf import settings
from django.db import migrations, models

from portal.core.create_models import CreateModels


class Migration(migrations.Migration):

    replaces = [
        ('monitoring', '0001_first_release'),
        ('monitoring', '0002_shortened'),
        ('monitoring', '0003_label_basis'),
        ('monitoring', '0004_empty_labels'),
        ('monitoring', '0005_erased_predictions'),
        ('monitoring', '0006_processed_at'),
    ]

    initial = True

    dependencies = [
        ('accounts', '0002_audit_append_only'),
        ('datasets', '0001_squashed_0003_tables_left_out'),
        ('endpoints', '0001_squashed_0006_named_environments'),
        ('registry', '0001_squashed_0003_batching'),
    ]

    operations = [
        CreateModels([
            migrations.CreateModel(
                name='Alert',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('alert', serialize=False)),
                    ('kind', models.CharField(max_length=24)),
                    ('subject', models.CharField(blank=True, max_length=250)),
                    ('revision_id', models.CharField(blank=True, max_length=32)),
                    ('state', models.CharField(default=portal.monitoring.lifecycle.AlertState['FIRING'], max_length=10)),
                    ('reason', models.CharField(max_length=1000)),
                    ('seen_at', models.DateTimeField(default=portal.core.clock.now)),
                    ('snoozed_until', models.DateTimeField(blank=True, null=True)),
                    ('resolved_at', models.DateTimeField(blank=True, null=True)),
                    ('endpoint', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='endpoints.endpoint')),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                    'indexes': [models.Index(fields=['endpoint', 'state'], name='alert_by_state')],
                    'constraints': [models.CheckConstraint(condition=models.Q(('state__in', ['firing', 'resolved'])), name='alert_known_state'), models.UniqueConstraint(condition=models.Q(('state', portal.monitoring.lifecycle.AlertState['FIRING'])), fields=('endpoint', 'kind', 'subject', 'revision_id'), name='alert_one_at_a_time')],
                },
            ),
            migrations.CreateModel(
                name='AlertChannel',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('chan', serialize=False)),
                    ('kind', models.CharField(max_length=10)),
                    ('target', models.CharField(max_length=2000)),
                    ('secret', models.BinaryField(default=b'')),
                    ('last_error', models.CharField(blank=True, max_length=500)),
                    ('endpoint', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='endpoints.endpoint')),
                    ('made_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                },
            ),
            migrations.CreateModel(
                name='AlertDelivery',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('tell', serialize=False)),
                    ('news', models.CharField(max_length=10)),
                    ('attempts', models.PositiveIntegerField(default=0)),
                    ('next_attempt_at', models.DateTimeField(default=portal.core.clock.now)),
                    ('sent_at', models.DateTimeField(blank=True, null=True)),
                    ('last_error', models.CharField(blank=True, max_length=500)),
                    ('alert', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='monitoring.alert')),
                    ('channel', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='monitoring.alertchannel')),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                    'constraints': [models.UniqueConstraint(fields=('alert', 'channel', 'news'), name='delivery_once_a_news')],
                },
            ),
            migrations.CreateModel(
                name='BaselineRecord',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('base', serialize=False)),
                    ('revision_id', models.CharField(blank=True, max_length=32)),
                    ('source', models.CharField(blank=True, max_length=24)),
                    ('words', models.CharField(blank=True, max_length=500)),
                    ('rows', models.BigIntegerField(default=0)),
                    ('features', models.JSONField(default=list)),
                    ('calibration', models.JSONField(blank=True, null=True)),
                    ('looks', models.PositiveSmallIntegerField(default=0)),
                    ('next_look_at', models.DateTimeField(default=portal.core.clock.now)),
                    ('record', models.OneToOneField(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='registry.versionrecord')),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                    'constraints': [models.UniqueConstraint(condition=models.Q(('revision_id', ''), _negated=True), fields=('revision_id',), name='baseline_once_a_revision')],
                },
            ),
            migrations.CreateModel(
                name='CapturedHour',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('hour', serialize=False)),
                    ('hour', models.DateTimeField()),
                    ('seen', models.JSONField(default=list)),
                    ('parts', models.JSONField(default=list)),
                    ('is_stale', models.BooleanField(default=True)),
                    ('is_closed', models.BooleanField(default=False)),
                    ('endpoint', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='endpoints.endpoint')),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                    'constraints': [models.UniqueConstraint(fields=('endpoint', 'hour'), name='hour_once_an_endpoint')],
                },
            ),
            migrations.CreateModel(
                name='DriftWindow',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('win', serialize=False)),
                    ('revision_id', models.CharField(max_length=32)),
                    ('starts_at', models.DateTimeField()),
                    ('ends_at', models.DateTimeField()),
                    ('rows', models.BigIntegerField()),
                    ('failed', models.BigIntegerField(default=0)),
                    ('features', models.JSONField(default=list)),
                    ('different', models.JSONField(default=list)),
                    ('drifted', models.JSONField(default=list)),
                    ('endpoint', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='endpoints.endpoint')),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                    'constraints': [models.UniqueConstraint(fields=('endpoint', 'revision_id', 'ends_at'), name='window_once_an_end')],
                },
            ),
            migrations.CreateModel(
                name='Erasure',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('gone', serialize=False)),
                    ('is_own', models.BooleanField(default=False)),
                    ('reference', models.CharField(max_length=200)),
                    ('rows', models.BigIntegerField(default=0)),
                    ('done_at', models.DateTimeField(blank=True, null=True)),
                    ('by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                    ('endpoint', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='endpoints.endpoint')),
                    ('prediction_ids', models.JSONField(default=list)),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                    'indexes': [models.Index(fields=['done_at'], name='erasure_waits')],
                },
            ),
            migrations.CreateModel(
                name='HourSummary',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('hour', models.DateTimeField()),
                    ('revision_id', models.CharField(max_length=32)),
                    ('rows', models.BigIntegerField(default=0)),
                    ('predictions', models.BigIntegerField(default=0)),
                    ('labelled', models.BigIntegerField(default=0)),
                    ('latency_ms', models.JSONField(default=dict)),
                    ('counts', models.JSONField(default=dict)),
                    ('quality', models.JSONField(blank=True, null=True)),
                    ('estimate', models.JSONField(blank=True, null=True)),
                    ('endpoint', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='endpoints.endpoint')),
                ],
                options={
                    'constraints': [models.UniqueConstraint(fields=('endpoint', 'hour', 'revision_id'), name='summary_once_an_hour')],
                },
            ),
            migrations.CreateModel(
                name='Label',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('lab', serialize=False)),
                    ('is_own', models.BooleanField(default=False)),
                    ('reference', models.CharField(max_length=200)),
                    ('row', models.PositiveIntegerField(default=0)),
                    ('version', models.PositiveIntegerField(default=1)),
                    ('is_current', models.BooleanField(default=True)),
                    ('value', models.JSONField()),
                    ('prediction_id', models.CharField(blank=True, max_length=40)),
                    ('hour', models.DateTimeField(blank=True, null=True)),
                    ('by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                    ('endpoint', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='endpoints.endpoint')),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                    'indexes': [models.Index(fields=['endpoint', 'hour'], name='label_by_hour'), models.Index(fields=['endpoint', 'prediction_id'], name='label_by_prediction')],
                    'constraints': [models.UniqueConstraint(fields=('endpoint', 'is_own', 'reference', 'row', 'version'), name='label_once_a_version'), models.UniqueConstraint(condition=models.Q(('is_current', True)), fields=('endpoint', 'is_own', 'reference', 'row'), name='label_one_counts')],
                },
            ),
            migrations.CreateModel(
                name='Monitor',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('mon', serialize=False)),
                    ('settings', models.JSONField(default=dict)),
                    ('columns', models.JSONField(default=dict)),
                    ('unreadable', models.BigIntegerField(default=0)),
                    ('fault', models.CharField(blank=True, max_length=500)),
                    ('endpoint', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='endpoints.endpoint')),
                    ('shortened', models.BigIntegerField(default=0)),
                    ('basis', models.JSONField(default=dict)),
                    ('processed_at', models.DateTimeField(blank=True, null=True)),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                },
            ),
            migrations.CreateModel(
                name='Selection',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('sel', serialize=False)),
                    ('filters', models.JSONField(default=dict)),
                    ('only_labelled', models.BooleanField(default=True)),
                    ('rows', models.BigIntegerField(default=0)),
                    ('revisions', models.JSONField(default=list)),
                    ('reason', models.CharField(blank=True, max_length=500)),
                    ('done_at', models.DateTimeField(blank=True, null=True)),
                    ('by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                    ('dataset', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='datasets.dataset')),
                    ('endpoint', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='endpoints.endpoint')),
                    ('version', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='datasets.version')),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                    'indexes': [models.Index(fields=['done_at'], name='selection_waits')],
                },
            ),
            migrations.CreateModel(
                name='EmptyLabel',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('eml', serialize=False)),
                    ('is_own', models.BooleanField(default=False)),
                    ('reference', models.CharField(max_length=200)),
                    ('row', models.PositiveIntegerField(default=0)),
                    ('hour', models.DateTimeField()),
                    ('endpoint', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='endpoints.endpoint')),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                    'indexes': [models.Index(fields=['endpoint', 'hour'], name='empty_label_by_hour')],
                    'constraints': [models.UniqueConstraint(fields=('endpoint', 'is_own', 'reference', 'row'), name='empty_label_once_a_row')],
                },
            ),
        ]),
    ]
