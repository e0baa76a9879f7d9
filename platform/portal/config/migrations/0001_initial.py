from django.db import migrations, models

from portal.core.create_models import CreateModels


class Migration(migrations.Migration):

    initial = True

    dependencies = [
    ]

    operations = [
        CreateModels([
            migrations.CreateModel(
                name='Leadership',
                fields=[
                    ('name', models.CharField(max_length=32, primary_key=True, serialize=False)),
                    ('holder', models.CharField(blank=True, max_length=64)),
                    ('epoch', models.PositiveBigIntegerField(default=0)),
                    ('expires_at', models.DateTimeField()),
                ],
            ),
            migrations.CreateModel(
                name='Schedule',
                fields=[
                    ('task', models.CharField(max_length=100, primary_key=True, serialize=False)),
                    ('next_at', models.DateTimeField()),
                ],
            ),
        ]),
    ]
