import django.db.models.deletion
import portal.core.clock
import portal.core.models
from django.conf import settings
from django.db import migrations, models

from portal.core.create_models import CreateModels


class Migration(migrations.Migration):

    replaces = [
        ('web', '0001_initial'),
        ('web', '0002_saved_views'),
        ('web', '0003_first_steps'),
        ('web', '0004_saved_views_of_experiments'),
    ]

    initial = True

    dependencies = [
        ('accounts', '0002_audit_append_only'),
    ]

    operations = [
        CreateModels([
            migrations.CreateModel(
                name='LiveEvent',
                fields=[
                    ('id', models.BigAutoField(primary_key=True, serialize=False)),
                    ('topic', models.CharField(max_length=32)),
                    ('what', models.CharField(max_length=32)),
                    ('at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                ],
                options={
                    'ordering': ['pk'],
                    'indexes': [models.Index(fields=['at'], name='live_by_age'), models.Index(fields=['topic', 'id'], name='live_by_topic')],
                },
            ),
            migrations.CreateModel(
                name='FirstSteps',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('fst', serialize=False)),
                    ('done', models.JSONField(default=list)),
                    ('hidden', models.BooleanField(default=False)),
                    ('user', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                },
            ),
        ]),
    ]
