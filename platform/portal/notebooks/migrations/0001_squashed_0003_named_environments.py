import django.db.models.deletion
import portal.core.clock
import portal.core.models
import slipway.schemas.notebook_servers
from django.conf import settings
from django.db import migrations, models

from portal.core.create_models import CreateModels


class Migration(migrations.Migration):

    replaces = [
        ('notebooks', '0001_first_release'),
        ('notebooks', '0002_workspace_requests'),
        ('notebooks', '0003_named_environments'),
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
                name='Hub',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('hub', serialize=False)),
                    ('name', models.CharField(max_length=48, unique=True)),
                    ('token_hash', models.CharField(max_length=64, unique=True)),
                    ('heard_at', models.DateTimeField(blank=True, null=True)),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                },
            ),
            migrations.CreateModel(
                name='HubVersion',
                fields=[
                    ('id', models.PositiveSmallIntegerField(primary_key=True, serialize=False)),
                    ('version', models.BigIntegerField(default=0)),
                ],
            ),
            migrations.CreateModel(
                name='Content',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('nbc', serialize=False)),
                    ('digest', models.CharField(max_length=64)),
                    ('file', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='storage.storedfile')),
                    ('project', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='accounts.project')),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                    'constraints': [models.UniqueConstraint(fields=('project', 'digest'), name='notebook_content_once')],
                },
            ),
            migrations.CreateModel(
                name='NotebookFile',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('nb', serialize=False)),
                    ('path', models.CharField(max_length=500)),
                    ('head', models.PositiveIntegerField(default=0)),
                    ('deleted_at', models.DateTimeField(blank=True, null=True)),
                    ('created_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                    ('project', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='accounts.project')),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                    'constraints': [models.UniqueConstraint(condition=models.Q(('deleted_at', None)), fields=('project', 'path'), name='notebook_once_a_path')],
                },
            ),
            migrations.CreateModel(
                name='NotebookVersion',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('nbv', serialize=False)),
                    ('number', models.PositiveIntegerField()),
                    ('origin', models.CharField(default='save', max_length=10)),
                    ('cells', models.PositiveIntegerField()),
                    ('parameters', models.JSONField(default=list)),
                    ('created_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                    ('file', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='versions', to='notebooks.notebookfile')),
                    ('origin_version', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='notebooks.notebookversion')),
                    ('outputs', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='notebooks.content')),
                    ('source', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='notebooks.content')),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                    'constraints': [models.UniqueConstraint(fields=('file', 'number'), name='notebook_version_once'), models.CheckConstraint(condition=models.Q(('number__gte', 1)), name='notebook_version_from_one')],
                },
            ),
            migrations.CreateModel(
                name='NotebookRun',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('workload', models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, primary_key=True, related_name='+', serialize=False, to='workloads.workload')),
                    ('path', models.CharField(max_length=500)),
                    ('purpose', models.CharField(max_length=10)),
                    ('params', models.JSONField(default=dict)),
                    ('passed', models.BooleanField(blank=True, null=True)),
                    ('report', models.JSONField(blank=True, null=True)),
                    ('output', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='storage.storedfile')),
                    ('version', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='notebooks.notebookversion')),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                },
            ),
            migrations.CreateModel(
                name='Server',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('nbs', serialize=False)),
                    ('name', models.CharField(max_length=48)),
                    ('requirements', models.TextField(blank=True)),
                    ('idle_after_s', models.PositiveIntegerField()),
                    ('max_lifetime_s', models.PositiveIntegerField(blank=True, null=True)),
                    ('daily_start', models.CharField(blank=True, max_length=5)),
                    ('daily_stop', models.CharField(blank=True, max_length=5)),
                    ('days', models.JSONField(default=list)),
                    ('schedule_seen_at', models.DateTimeField(default=portal.core.clock.now)),
                    ('tags', models.JSONField(default=dict)),
                    ('state', models.CharField(default=slipway.schemas.notebook_servers.NotebookState['STOPPED'], max_length=16)),
                    ('reason', models.CharField(blank=True, max_length=500)),
                    ('next_step', models.CharField(blank=True, max_length=300)),
                    ('started_at', models.DateTimeField(blank=True, null=True)),
                    ('opening_since', models.DateTimeField(blank=True, null=True)),
                    ('door_trouble', models.CharField(blank=True, max_length=300)),
                    ('run_attempt', models.PositiveIntegerField(default=0)),
                    ('report_sequence', models.BigIntegerField(default=-1)),
                    ('address', models.CharField(blank=True, max_length=260)),
                    ('active_at', models.DateTimeField(blank=True, null=True)),
                    ('why_alive', models.CharField(blank=True, max_length=300)),
                    ('stops_at', models.DateTimeField(blank=True, null=True)),
                    ('stops_why', models.CharField(blank=True, max_length=300)),
                    ('open_files', models.JSONField(default=list)),
                    ('owner', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                    ('project', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='accounts.project')),
                    ('tier', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='compute.tier')),
                    ('workload', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='workloads.workload')),
                    ('environment_version', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='compute.environmentversion')),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                    'indexes': [models.Index(fields=['project', '-id'], name='server_by_project'), models.Index(condition=models.Q(('state__in', ['opening', 'ready', 'starting', 'stopping'])), fields=['id'], name='server_alive')],
                    'constraints': [models.CheckConstraint(condition=models.Q(('state__in', ['starting', 'opening', 'ready', 'stopping', 'stopped', 'failed'])), name='server_known_state'), models.UniqueConstraint(fields=('project', 'owner', 'name'), name='server_once_a_name')],
                },
            ),
            migrations.CreateModel(
                name='ServerRun',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('nbr', serialize=False)),
                    ('server', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='runs', to='notebooks.server')),
                    ('workload', models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='workloads.workload')),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                },
            ),
            migrations.CreateModel(
                name='WorkspaceRequest',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('wfr', serialize=False)),
                    ('request', models.JSONField()),
                    ('answer', models.JSONField(blank=True, null=True)),
                    ('state', models.CharField(max_length=10)),
                    ('expires_at', models.DateTimeField()),
                    ('node', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='compute.node')),
                    ('person', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
                    ('project', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='accounts.project')),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                    'constraints': [models.CheckConstraint(condition=models.Q(('state__in', ('receiving', 'waiting', 'claimed', 'streaming', 'ended'))), name='workspace_request_known_state')],
                },
            ),
        ]),
    ]
