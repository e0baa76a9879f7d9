"""Ids of a project in a pool get a prefix of their own."""

import portal.core.models
from django.db import migrations


class Migration(migrations.Migration):

    dependencies = [
        ('compute', '0010_dockerfiles'),
    ]

    operations = [
        migrations.AlterField(
            model_name='poolproject',
            name='id',
            field=portal.core.models.IdField('plpr', serialize=False),
        ),
    ]
