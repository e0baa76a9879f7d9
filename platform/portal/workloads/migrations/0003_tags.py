from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('workloads', '0002_billing'),
    ]

    operations = [
        migrations.AddField(
            model_name='workload',
            name='tags',
            field=models.JSONField(default=dict),
        ),
    ]
