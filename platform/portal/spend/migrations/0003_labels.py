from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('spend', '0002_append_only'),
    ]

    operations = [
        migrations.CreateModel(
            name='LedgerVersion',
            fields=[
                ('id', models.PositiveSmallIntegerField(primary_key=True, serialize=False)),
                ('version', models.BigIntegerField(default=0)),
            ],
        ),
        migrations.CreateModel(
            name='LabelTotal',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('period', models.CharField(max_length=10)),
                ('project', models.CharField(blank=True, default='', max_length=64)),
                ('part', models.CharField(max_length=32)),
                ('key', models.CharField(max_length=128)),
                ('nano_usd', models.BigIntegerField()),
            ],
            options={
                'indexes': [models.Index(fields=['period', 'part', '-nano_usd'], name='label_total_dearest')],
                'constraints': [models.UniqueConstraint(fields=('period', 'project', 'part', 'key'), name='label_total_once')],
            },
        ),
        migrations.AddIndex(
            model_name='daytotal',
            index=models.Index(fields=['team', 'day'], name='day_by_team'),
        ),
        migrations.AddIndex(
            model_name='daytotal',
            index=models.Index(fields=['person', 'day'], name='day_by_person'),
        ),
    ]
