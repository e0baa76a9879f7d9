import django.db.models.deletion
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
                name='Blob',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('blob', serialize=False)),
                    ('sha256', models.CharField(max_length=64)),
                    ('size_bytes', models.BigIntegerField()),
                    ('key', models.CharField(max_length=100, unique=True)),
                    ('unreferenced_since', models.DateTimeField(blank=True, null=True)),
                    ('condemned_at', models.DateTimeField(blank=True, null=True)),
                    ('damaged_at', models.DateTimeField(blank=True, null=True)),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                    'indexes': [models.Index(condition=models.Q(('unreferenced_since__isnull', False)), fields=['unreferenced_since'], name='blob_idle')],
                    'constraints': [models.UniqueConstraint(condition=models.Q(('condemned_at__isnull', True)), fields=('sha256',), name='blob_once_a_digest'), models.CheckConstraint(condition=models.Q(('size_bytes__gte', 0)), name='blob_size_not_negative')],
                },
            ),
            migrations.CreateModel(
                name='StoredFile',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('file', serialize=False)),
                    ('name', models.CharField(max_length=255)),
                    ('blob', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='storage.blob')),
                    ('created_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                    ('project', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='accounts.project')),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                    'indexes': [models.Index(fields=['project', '-id'], name='file_by_project')],
                },
            ),
        ]),
    ]
