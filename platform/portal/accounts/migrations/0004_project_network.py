from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('accounts', '0003_audit_not_replaced'),
    ]

    operations = [
        migrations.AddField(
            model_name='project',
            name='network',
            field=models.CharField(db_default='open', default='open', max_length=16),
        ),
        migrations.AddConstraint(
            model_name='project',
            constraint=models.CheckConstraint(condition=models.Q(('network__in', ('open', 'platform'))), name='project_known_network'),
        ),
    ]
