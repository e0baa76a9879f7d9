from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('training', '0001_squashed_0005_job_python'),
    ]

    operations = [
        migrations.AddField(
            model_name='job',
            name='variables',
            field=models.JSONField(blank=True, null=True),
        ),
    ]
