from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('accounts', '0004_project_network'),
        ('experiments', '0002_saved_views'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name='savedview',
            name='is_private',
            field=models.BooleanField(db_default=False, default=False),
        ),
        migrations.RemoveConstraint(
            model_name='savedview',
            name='view_name_once_a_project',
        ),
        migrations.AddConstraint(
            model_name='savedview',
            constraint=models.UniqueConstraint(condition=models.Q(('is_private', False)), fields=('project', 'name'), name='shared_view_name_once_a_project'),
        ),
        migrations.AddConstraint(
            model_name='savedview',
            constraint=models.UniqueConstraint(condition=models.Q(('is_private', True)), fields=('project', 'saved_by', 'name'), name='private_view_name_once_a_person'),
        ),
    ]
