from django.db import migrations


class Migration(migrations.Migration):
    # The table stays, as that of experiments.SavedView.

    dependencies = [
        ('web', '0003_first_steps'),
        ('experiments', '0002_saved_views'),
    ]

    operations = [
        migrations.SeparateDatabaseAndState(state_operations=[
            migrations.DeleteModel(name='SavedView'),
        ]),
    ]
