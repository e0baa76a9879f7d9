"""Builds belong to a project. Nodes report what they have again, so the rows of before go."""

import django.db.models.deletion
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import StateApps


def forget_builds(apps: StateApps, _editor: BaseDatabaseSchemaEditor) -> None:
    apps.get_model("compute", "EnvironmentBuild").objects.all().delete()


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0002_audit_append_only"),
        ("compute", "0004_node_isolation"),
    ]

    operations = [
        migrations.RunPython(forget_builds, migrations.RunPython.noop),
        migrations.RemoveConstraint("environmentbuild", "build_once_an_environment_and_node"),
        migrations.AddField(
            "environmentbuild",
            "project",
            models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE,
                related_name="+",
                to="accounts.project",
            ),
        ),
        migrations.AddConstraint(
            "environmentbuild",
            models.UniqueConstraint(
                fields=["environment", "node", "project"],
                name="build_once_an_environment_node_and_project",
            ),
        ),
    ]
