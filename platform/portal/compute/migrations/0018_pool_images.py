from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('compute', '0017_machine_days'),
    ]

    operations = [
        migrations.AddField(
            model_name='buildrequest',
            name='cpu_millis',
            field=models.BigIntegerField(default=0),
        ),
        migrations.AddField(
            model_name='buildrequest',
            name='memory_bytes',
            field=models.BigIntegerField(default=0),
        ),
        migrations.AddField(
            model_name='buildrequest',
            name='snapshot',
            field=models.CharField(blank=True, default='', max_length=100),
        ),
        migrations.AddField(
            model_name='environmentbuild',
            name='image',
            field=models.CharField(blank=True, default='', max_length=500),
        ),
        migrations.AddField(
            model_name='environmentbuild',
            name='image_python',
            field=models.CharField(blank=True, default='', max_length=200),
        ),
    ]
