import portal.core.clock
from django.db import migrations, models

from portal.core.create_models import CreateModels


class Migration(migrations.Migration):

    initial = True

    dependencies = [
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
        ]),
    ]
