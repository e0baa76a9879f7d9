
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('training', '0002_kept_files'),
    ]

    operations = [
        migrations.AddField(
            model_name='job',
            name='finds_requirements',
            field=models.BooleanField(default=False),
        ),
        migrations.AddField(
            model_name='job',
            name='requirements_file',
            field=models.CharField(blank=True, default='', max_length=500),
        ),
    ]
