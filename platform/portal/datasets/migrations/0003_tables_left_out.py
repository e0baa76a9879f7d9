from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('datasets', '0002_table_schemas'),
    ]

    operations = [
        migrations.AddField(
            model_name='version',
            name='tables_left_out',
            field=models.PositiveIntegerField(db_default=0, default=0),
        ),
    ]
