from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('workloads', '0001_first_release'),
    ]

    operations = [
        migrations.AddField(
            model_name='workload',
            name='network',
            field=models.CharField(db_default='open', default='open', max_length=16),
        ),
    ]
