import portal.core.clock
import portal.core.models
from django.db import migrations, models

from portal.core.create_models import CreateModels


class Migration(migrations.Migration):

    initial = True

    dependencies = [
    ]

    operations = [
        CreateModels([
            migrations.CreateModel(
                name='IdempotencyRecord',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('idem', serialize=False)),
                    ('principal', models.CharField(max_length=32)),
                    ('key', models.CharField(max_length=128)),
                    ('fingerprint', models.CharField(max_length=64)),
                    ('status', models.PositiveSmallIntegerField(default=0)),
                    ('content_type', models.CharField(blank=True, max_length=100)),
                    ('body', models.BinaryField(default=b'')),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                    'indexes': [models.Index(fields=['created_at'], name='idempotency_by_age')],
                    'constraints': [models.UniqueConstraint(fields=('principal', 'key'), name='idempotency_once')],
                },
            ),
        ]),
    ]
