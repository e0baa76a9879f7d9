"""Replicas of endpoints are the kind `replica`; they were `endpoint`."""

from django.db import migrations


def _rename(apps, old: str, new: str) -> None:
    apps.get_model("workloads", "Workload").objects.filter(kind=old).update(kind=new)


def forwards(apps, schema_editor) -> None:
    _rename(apps, "endpoint", "replica")


def backwards(apps, schema_editor) -> None:
    _rename(apps, "replica", "endpoint")


class Migration(migrations.Migration):
    dependencies = [("workloads", "0002_workload_network")]
    operations = [migrations.RunPython(forwards, backwards)]
