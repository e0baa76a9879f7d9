from django.db import migrations

from portal.core.append_only import AppendOnly


class Migration(migrations.Migration):
    dependencies = [("registry", "0001_squashed_0003_batching")]
    operations = [
        AppendOnly("Evaluation", "evaluations are only ever added"),
        AppendOnly("Move", "the history of a model is only ever added to", mutable=["told_at"]),
    ]
