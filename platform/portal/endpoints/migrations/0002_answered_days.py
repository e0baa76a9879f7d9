import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('endpoints', '0001_initial'),
    ]

    operations = [
        migrations.CreateModel(
            name='AnsweredDay',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('day', models.DateField()),
                ('answered', models.BigIntegerField(default=0)),
                ('endpoint', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='endpoints.endpoint')),
            ],
            options={
                'indexes': [models.Index(fields=['day'], name='answered_by_day')],
                'constraints': [models.UniqueConstraint(fields=('endpoint', 'day'), name='answered_once_a_day')],
            },
        ),
    ]
