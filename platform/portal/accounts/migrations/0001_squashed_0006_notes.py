import django.db.models.deletion
import django.db.models.functions.text
import portal.core.clock
import portal.core.models
from django.conf import settings
from django.db import migrations, models

from portal.core.create_models import CreateModels


class Migration(migrations.Migration):

    replaces = [
        ('accounts', '0001_initial'),
        ('accounts', '0004_project_network'),
        ('accounts', '0005_readmes'),
        ('accounts', '0006_notes'),
    ]

    initial = True

    dependencies = [

    ]

    operations = [
        CreateModels([
            migrations.CreateModel(
                name='Team',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('team', serialize=False)),
                    ('slug', models.CharField(max_length=48, unique=True)),
                    ('name', models.CharField(max_length=100)),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                },
            ),
            migrations.CreateModel(
                name='Project',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('prj', serialize=False)),
                    ('slug', models.CharField(max_length=48, unique=True)),
                    ('name', models.CharField(max_length=100)),
                    ('description', models.CharField(blank=True, max_length=2000)),
                    ('archived_at', models.DateTimeField(blank=True, null=True)),
                    ('team', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='projects', to='accounts.team')),
                    ('network', models.CharField(db_default='open', default='open', max_length=16)),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                    'constraints': [models.CheckConstraint(condition=models.Q(('network__in', ('open', 'platform'))), name='project_known_network')],
                },
            ),
            migrations.CreateModel(
                name='User',
                fields=[
                    ('password', models.CharField(max_length=128, verbose_name='password')),
                    ('last_login', models.DateTimeField(blank=True, null=True, verbose_name='last login')),
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('usr', serialize=False)),
                    ('email', models.EmailField(max_length=254, unique=True)),
                    ('name', models.CharField(blank=True, max_length=100)),
                    ('is_active', models.BooleanField(default=True)),
                    ('is_administrator', models.BooleanField(default=False)),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                    'constraints': [models.UniqueConstraint(django.db.models.functions.text.Lower('email'), name='user_email_any_case')],
                },
            ),
            migrations.CreateModel(
                name='AuditEvent',
                fields=[
                    ('id', portal.core.models.IdField('aud', serialize=False)),
                    ('at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('actor_id', models.CharField(blank=True, max_length=32)),
                    ('actor', models.CharField(max_length=254)),
                    ('token_id', models.CharField(blank=True, max_length=32)),
                    ('ip', models.GenericIPAddressField(blank=True, null=True)),
                    ('request_id', models.CharField(blank=True, max_length=64)),
                    ('verb', models.CharField(max_length=64)),
                    ('project_id', models.CharField(blank=True, max_length=32)),
                    ('project_slug', models.CharField(blank=True, max_length=48)),
                    ('team_id', models.CharField(blank=True, max_length=32)),
                    ('team_slug', models.CharField(blank=True, max_length=48)),
                    ('target_kind', models.CharField(max_length=32)),
                    ('target_id', models.CharField(max_length=64)),
                    ('target_label', models.CharField(max_length=254)),
                    ('before', models.JSONField(blank=True, null=True)),
                    ('after', models.JSONField(blank=True, null=True)),
                ],
                options={
                    'ordering': ['-pk'],
                    'indexes': [models.Index(fields=['project_id', '-id'], name='audit_by_project'), models.Index(fields=['team_id', '-id'], name='audit_by_team'), models.Index(fields=['actor_id', '-id'], name='audit_by_actor'), models.Index(fields=['verb', '-id'], name='audit_by_verb'), models.Index(fields=['target_id', '-id'], name='audit_by_target')],
                },
            ),
            migrations.CreateModel(
                name='OutboxMail',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('mail', serialize=False)),
                    ('to', models.EmailField(max_length=254)),
                    ('subject', models.CharField(max_length=200)),
                    ('body', models.TextField()),
                    ('attempts', models.PositiveIntegerField(default=0)),
                    ('next_attempt_at', models.DateTimeField(default=portal.core.clock.now)),
                    ('sent_at', models.DateTimeField(blank=True, null=True)),
                    ('last_error', models.CharField(blank=True, max_length=500)),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                    'indexes': [models.Index(condition=models.Q(('sent_at__isnull', True)), fields=['next_attempt_at'], name='mail_due')],
                },
            ),
            migrations.CreateModel(
                name='ApiToken',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('tok', serialize=False)),
                    ('name', models.CharField(max_length=100)),
                    ('prefix', models.CharField(max_length=16)),
                    ('token_hash', models.CharField(max_length=64, unique=True)),
                    ('scopes', models.JSONField(default=list)),
                    ('expires_at', models.DateTimeField(blank=True, null=True)),
                    ('last_used_at', models.DateTimeField(blank=True, null=True)),
                    ('revoked_at', models.DateTimeField(blank=True, null=True)),
                    ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='tokens', to=settings.AUTH_USER_MODEL)),
                    ('project', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='accounts.project')),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                },
            ),
            migrations.CreateModel(
                name='ProjectSecret',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('sec', serialize=False)),
                    ('name', models.CharField(max_length=64)),
                    ('ciphertext', models.BinaryField()),
                    ('updated_at', models.DateTimeField()),
                    ('project', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='secrets', to='accounts.project')),
                    ('updated_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                    'constraints': [models.UniqueConstraint(fields=('project', 'name'), name='secret_once_a_project')],
                },
            ),
            migrations.CreateModel(
                name='Membership',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('mbr', serialize=False)),
                    ('role', models.CharField(choices=[('viewer', 'viewer'), ('contributor', 'contributor'), ('maintainer', 'maintainer'), ('owner', 'owner')], max_length=16)),
                    ('user', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='memberships', to=settings.AUTH_USER_MODEL)),
                    ('project', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='memberships', to='accounts.project')),
                    ('team', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='memberships', to='accounts.team')),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                    'constraints': [models.CheckConstraint(condition=models.Q(('team__isnull', True), ('project__isnull', True), _connector='XOR'), name='membership_team_or_project'), models.CheckConstraint(condition=models.Q(('role__in', ['viewer', 'contributor', 'maintainer', 'owner'])), name='membership_known_role'), models.UniqueConstraint(condition=models.Q(('team__isnull', False)), fields=('user', 'team'), name='membership_once_a_team'), models.UniqueConstraint(condition=models.Q(('project__isnull', False)), fields=('user', 'project'), name='membership_once_a_project')],
                },
            ),
            migrations.CreateModel(
                name='Invitation',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('inv', serialize=False)),
                    ('email', models.EmailField(max_length=254)),
                    ('role', models.CharField(choices=[('viewer', 'viewer'), ('contributor', 'contributor'), ('maintainer', 'maintainer'), ('owner', 'owner')], max_length=16)),
                    ('token_hash', models.CharField(max_length=64, unique=True)),
                    ('expires_at', models.DateTimeField()),
                    ('accepted_at', models.DateTimeField(blank=True, null=True)),
                    ('revoked_at', models.DateTimeField(blank=True, null=True)),
                    ('accepted_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                    ('invited_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                    ('project', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='invitations', to='accounts.project')),
                    ('team', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='invitations', to='accounts.team')),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                    'constraints': [models.CheckConstraint(condition=models.Q(('team__isnull', True), ('project__isnull', True), _connector='XOR'), name='invitation_team_or_project')],
                },
            ),
            migrations.CreateModel(
                name='ProjectReadme',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('rdm', serialize=False)),
                    ('text', models.TextField(blank=True)),
                    ('version', models.PositiveIntegerField(default=1)),
                    ('saved_at', models.DateTimeField(default=portal.core.clock.now)),
                    ('project', models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='accounts.project')),
                    ('saved_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                    'constraints': [models.CheckConstraint(condition=models.Q(('version__gte', 1)), name='readme_version_from_one')],
                },
            ),
            migrations.CreateModel(
                name='ObjectNote',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('text', models.TextField(blank=True)),
                    ('version', models.PositiveIntegerField(default=1)),
                    ('saved_at', models.DateTimeField(default=portal.core.clock.now)),
                    ('id', portal.core.models.IdField('note', serialize=False)),
                    ('kind', models.CharField(max_length=32)),
                    ('target', models.CharField(max_length=32)),
                    ('project', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='accounts.project')),
                    ('saved_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                    'constraints': [models.UniqueConstraint(fields=('project', 'kind', 'target'), name='note_unique_per_object'), models.CheckConstraint(condition=models.Q(('version__gte', 1)), name='note_version_from_one')],
                },
            ),
        ]),
    ]
