import django.db.models.deletion
import portal.core.clock
import portal.core.models
from django.conf import settings
from django.db import migrations, models

from portal.core.create_models import CreateModels


class Migration(migrations.Migration):

    replaces = [
        ('experiments', '0001_first_release'),
        ('experiments', '0002_saved_views'),
        ('experiments', '0003_private_views'),
    ]

    initial = True

    dependencies = [
        ('accounts', '0002_audit_append_only'),
    ]

    operations = [
        CreateModels([
            migrations.CreateModel(
                name='Experiment',
                fields=[
                    ('experiment_id', models.AutoField(primary_key=True, serialize=False)),
                    ('name', models.CharField(max_length=256)),
                    ('artifact_location', models.CharField(max_length=256, null=True)),
                    ('lifecycle_stage', models.CharField(max_length=32)),
                    ('creation_time', models.BigIntegerField(null=True)),
                    ('last_update_time', models.BigIntegerField(null=True)),
                    ('workspace', models.CharField(max_length=63)),
                ],
                options={
                    'db_table': 'experiments',
                    'abstract': False,
                    'managed': False,
                },
            ),
            migrations.CreateModel(
                name='ExperimentTag',
                fields=[
                    ('pk', models.CompositePrimaryKey('key', 'experiment_id', blank=True, editable=False, primary_key=True, serialize=False)),
                    ('key', models.CharField(max_length=250)),
                    ('value', models.TextField(null=True)),
                ],
                options={
                    'db_table': 'experiment_tags',
                    'abstract': False,
                    'managed': False,
                },
            ),
            migrations.CreateModel(
                name='Input',
                fields=[
                    ('pk', models.CompositePrimaryKey('source_type', 'source_id', 'destination_type', 'destination_id', blank=True, editable=False, primary_key=True, serialize=False)),
                    ('input_uuid', models.CharField(max_length=36)),
                    ('source_type', models.CharField(max_length=36)),
                    ('source_id', models.CharField(max_length=36)),
                    ('destination_type', models.CharField(max_length=36)),
                    ('destination_id', models.CharField(max_length=36)),
                    ('step', models.BigIntegerField()),
                ],
                options={
                    'db_table': 'inputs',
                    'abstract': False,
                    'managed': False,
                },
            ),
            migrations.CreateModel(
                name='InputTag',
                fields=[
                    ('pk', models.CompositePrimaryKey('input_uuid', 'name', blank=True, editable=False, primary_key=True, serialize=False)),
                    ('input_uuid', models.CharField(max_length=36)),
                    ('name', models.CharField(max_length=255)),
                    ('value', models.CharField(max_length=500)),
                ],
                options={
                    'db_table': 'input_tags',
                    'abstract': False,
                    'managed': False,
                },
            ),
            migrations.CreateModel(
                name='LatestMetric',
                fields=[
                    ('pk', models.CompositePrimaryKey('key', 'run_id', blank=True, editable=False, primary_key=True, serialize=False)),
                    ('key', models.CharField(max_length=250)),
                    ('value', models.FloatField()),
                    ('timestamp', models.BigIntegerField(null=True)),
                    ('step', models.BigIntegerField()),
                    ('is_nan', models.BooleanField()),
                ],
                options={
                    'db_table': 'latest_metrics',
                    'abstract': False,
                    'managed': False,
                },
            ),
            migrations.CreateModel(
                name='LoggedDataset',
                fields=[
                    ('pk', models.CompositePrimaryKey('experiment_id', 'name', 'digest', blank=True, editable=False, primary_key=True, serialize=False)),
                    ('dataset_uuid', models.CharField(max_length=36)),
                    ('name', models.CharField(max_length=500)),
                    ('digest', models.CharField(max_length=36)),
                    ('dataset_source_type', models.CharField(max_length=36)),
                    ('dataset_source', models.TextField()),
                    ('dataset_schema', models.TextField(null=True)),
                    ('dataset_profile', models.TextField(null=True)),
                ],
                options={
                    'db_table': 'datasets',
                    'abstract': False,
                    'managed': False,
                },
            ),
            migrations.CreateModel(
                name='LoggedModel',
                fields=[
                    ('model_id', models.CharField(max_length=36, primary_key=True, serialize=False)),
                    ('name', models.CharField(max_length=500)),
                    ('artifact_location', models.CharField(max_length=1000)),
                    ('creation_timestamp_ms', models.BigIntegerField()),
                    ('last_updated_timestamp_ms', models.BigIntegerField()),
                    ('status', models.IntegerField()),
                    ('lifecycle_stage', models.CharField(max_length=32, null=True)),
                    ('model_type', models.CharField(max_length=500, null=True)),
                    ('source_run_id', models.CharField(max_length=32, null=True)),
                    ('status_message', models.CharField(max_length=1000, null=True)),
                ],
                options={
                    'db_table': 'logged_models',
                    'abstract': False,
                    'managed': False,
                },
            ),
            migrations.CreateModel(
                name='LoggedModelMetric',
                fields=[
                    ('pk', models.CompositePrimaryKey('model_id', 'metric_name', 'metric_timestamp_ms', 'metric_step', 'run_id', blank=True, editable=False, primary_key=True, serialize=False)),
                    ('metric_name', models.CharField(max_length=500)),
                    ('metric_timestamp_ms', models.BigIntegerField()),
                    ('metric_step', models.BigIntegerField()),
                    ('metric_value', models.FloatField(null=True)),
                    ('experiment_id', models.IntegerField()),
                    ('dataset_uuid', models.CharField(max_length=36, null=True)),
                    ('dataset_name', models.CharField(max_length=500, null=True)),
                    ('dataset_digest', models.CharField(max_length=36, null=True)),
                ],
                options={
                    'db_table': 'logged_model_metrics',
                    'abstract': False,
                    'managed': False,
                },
            ),
            migrations.CreateModel(
                name='LoggedModelParam',
                fields=[
                    ('pk', models.CompositePrimaryKey('model_id', 'param_key', blank=True, editable=False, primary_key=True, serialize=False)),
                    ('experiment_id', models.IntegerField()),
                    ('param_key', models.CharField(max_length=255)),
                    ('param_value', models.TextField()),
                ],
                options={
                    'db_table': 'logged_model_params',
                    'abstract': False,
                    'managed': False,
                },
            ),
            migrations.CreateModel(
                name='LoggedModelTag',
                fields=[
                    ('pk', models.CompositePrimaryKey('model_id', 'tag_key', blank=True, editable=False, primary_key=True, serialize=False)),
                    ('experiment_id', models.IntegerField()),
                    ('tag_key', models.CharField(max_length=255)),
                    ('tag_value', models.TextField()),
                ],
                options={
                    'db_table': 'logged_model_tags',
                    'abstract': False,
                    'managed': False,
                },
            ),
            migrations.CreateModel(
                name='Metric',
                fields=[
                    ('pk', models.CompositePrimaryKey('key', 'timestamp', 'step', 'run_id', 'value', 'is_nan', blank=True, editable=False, primary_key=True, serialize=False)),
                    ('key', models.CharField(max_length=250)),
                    ('value', models.FloatField()),
                    ('timestamp', models.BigIntegerField()),
                    ('step', models.BigIntegerField()),
                    ('is_nan', models.BooleanField()),
                ],
                options={
                    'db_table': 'metrics',
                    'abstract': False,
                    'managed': False,
                },
            ),
            migrations.CreateModel(
                name='ModelVersion',
                fields=[
                    ('pk', models.CompositePrimaryKey('workspace', 'name', 'version', blank=True, editable=False, primary_key=True, serialize=False)),
                    ('name', models.CharField(max_length=256)),
                    ('version', models.IntegerField()),
                    ('creation_time', models.BigIntegerField(null=True)),
                    ('last_updated_time', models.BigIntegerField(null=True)),
                    ('description', models.CharField(max_length=5000, null=True)),
                    ('user_id', models.CharField(max_length=256, null=True)),
                    ('current_stage', models.CharField(max_length=20, null=True)),
                    ('source', models.CharField(max_length=500, null=True)),
                    ('run_id', models.CharField(max_length=32, null=True)),
                    ('status', models.CharField(max_length=20, null=True)),
                    ('status_message', models.CharField(max_length=500, null=True)),
                    ('run_link', models.CharField(max_length=500, null=True)),
                    ('storage_location', models.CharField(max_length=500, null=True)),
                    ('workspace', models.CharField(max_length=63)),
                ],
                options={
                    'db_table': 'model_versions',
                    'abstract': False,
                    'managed': False,
                },
            ),
            migrations.CreateModel(
                name='ModelVersionTag',
                fields=[
                    ('pk', models.CompositePrimaryKey('workspace', 'key', 'name', 'version', blank=True, editable=False, primary_key=True, serialize=False)),
                    ('key', models.CharField(max_length=250)),
                    ('value', models.TextField(null=True)),
                    ('name', models.CharField(max_length=256)),
                    ('version', models.IntegerField()),
                    ('workspace', models.CharField(max_length=63)),
                ],
                options={
                    'db_table': 'model_version_tags',
                    'abstract': False,
                    'managed': False,
                },
            ),
            migrations.CreateModel(
                name='Param',
                fields=[
                    ('pk', models.CompositePrimaryKey('key', 'run_id', blank=True, editable=False, primary_key=True, serialize=False)),
                    ('key', models.CharField(max_length=250)),
                    ('value', models.CharField(max_length=8000)),
                ],
                options={
                    'db_table': 'params',
                    'abstract': False,
                    'managed': False,
                },
            ),
            migrations.CreateModel(
                name='RegisteredModel',
                fields=[
                    ('pk', models.CompositePrimaryKey('workspace', 'name', blank=True, editable=False, primary_key=True, serialize=False)),
                    ('name', models.CharField(max_length=256)),
                    ('creation_time', models.BigIntegerField(null=True)),
                    ('last_updated_time', models.BigIntegerField(null=True)),
                    ('description', models.CharField(max_length=5000, null=True)),
                    ('workspace', models.CharField(max_length=63)),
                ],
                options={
                    'db_table': 'registered_models',
                    'abstract': False,
                    'managed': False,
                },
            ),
            migrations.CreateModel(
                name='RegisteredModelAlias',
                fields=[
                    ('pk', models.CompositePrimaryKey('workspace', 'name', 'alias', blank=True, editable=False, primary_key=True, serialize=False)),
                    ('alias', models.CharField(max_length=256)),
                    ('version', models.IntegerField()),
                    ('name', models.CharField(max_length=256)),
                    ('workspace', models.CharField(max_length=63)),
                ],
                options={
                    'db_table': 'registered_model_aliases',
                    'abstract': False,
                    'managed': False,
                },
            ),
            migrations.CreateModel(
                name='RegisteredModelTag',
                fields=[
                    ('pk', models.CompositePrimaryKey('workspace', 'key', 'name', blank=True, editable=False, primary_key=True, serialize=False)),
                    ('key', models.CharField(max_length=250)),
                    ('value', models.CharField(max_length=5000, null=True)),
                    ('name', models.CharField(max_length=256)),
                    ('workspace', models.CharField(max_length=63)),
                ],
                options={
                    'db_table': 'registered_model_tags',
                    'abstract': False,
                    'managed': False,
                },
            ),
            migrations.CreateModel(
                name='Run',
                fields=[
                    ('run_uuid', models.CharField(max_length=32, primary_key=True, serialize=False)),
                    ('name', models.CharField(max_length=250, null=True)),
                    ('source_type', models.CharField(max_length=20, null=True)),
                    ('source_name', models.CharField(max_length=500, null=True)),
                    ('entry_point_name', models.CharField(max_length=50, null=True)),
                    ('user_id', models.CharField(max_length=256, null=True)),
                    ('status', models.CharField(max_length=20)),
                    ('start_time', models.BigIntegerField(null=True)),
                    ('end_time', models.BigIntegerField(null=True)),
                    ('deleted_time', models.BigIntegerField(null=True)),
                    ('source_version', models.CharField(max_length=50, null=True)),
                    ('lifecycle_stage', models.CharField(max_length=20)),
                    ('artifact_uri', models.CharField(max_length=200, null=True)),
                ],
                options={
                    'db_table': 'runs',
                    'abstract': False,
                    'managed': False,
                },
            ),
            migrations.CreateModel(
                name='Tag',
                fields=[
                    ('pk', models.CompositePrimaryKey('key', 'run_id', blank=True, editable=False, primary_key=True, serialize=False)),
                    ('key', models.CharField(max_length=250)),
                    ('value', models.CharField(max_length=8000, null=True)),
                ],
                options={
                    'db_table': 'tags',
                    'abstract': False,
                    'managed': False,
                },
            ),
            migrations.CreateModel(
                name='StoredArtifacts',
                fields=[
                    ('project', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='+', serialize=False, to='accounts.project')),
                    ('size_bytes', models.BigIntegerField()),
                    ('measured_at', models.DateTimeField()),
                ],
            ),
            migrations.CreateModel(
                name='SavedView',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('view', serialize=False)),
                    ('name', models.CharField(max_length=100)),
                    ('query', models.TextField(blank=True)),
                    ('experiment_id', models.PositiveIntegerField(null=True)),
                    ('project', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='accounts.project')),
                    ('saved_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                    ('is_private', models.BooleanField(db_default=False, default=False)),
                ],
                options={
                    'db_table': 'web_savedview',
                    'ordering': ['-pk'],
                    'abstract': False,
                    'constraints': [models.UniqueConstraint(condition=models.Q(('is_private', False)), fields=('project', 'name'), name='shared_view_name_once_a_project'), models.UniqueConstraint(condition=models.Q(('is_private', True)), fields=('project', 'saved_by', 'name'), name='private_view_name_once_a_person')],
                },
            ),
        ]),
    ]
