from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('monitoring', '0002_selection_revisions'),
    ]

    operations = [
        migrations.AddField(
            model_name='driftwindow',
            name='failed',
            field=models.BigIntegerField(default=0),
        ),
    ]
