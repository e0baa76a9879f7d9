"""Background tasks of this app."""

from datetime import timedelta

from portal.core.enqueue import background_task
from portal.core.errors import NotFound
from portal.registry.catalog import find_version
from portal.registry.mlflow_sync import sync_pending
from portal.registry.model_inspection import hash_files, records_without_digests
from portal.registry.models import VersionRecord

PERIODIC = {
    "registry.hash_pending": timedelta(minutes=1),
    "registry.sync_mlflow": timedelta(seconds=10),
}


@background_task("registry.hash_version")
def hash_version(record_id: str) -> None:
    """Compute the digests of the files of one version, unless that was done before."""
    record = VersionRecord.objects.select_related("line").filter(pk=record_id).first()
    if record is None or record.hashed_at is not None:
        return
    try:
        version = find_version(record.line.project_id, record.line.name, record.number)
    except NotFound:
        return
    hash_files(record, version)


@background_task("registry.hash_pending")
def hash_pending() -> None:
    """Compute digests whose task was lost."""
    for record in records_without_digests():
        hash_version(record.pk)


@background_task("registry.sync_mlflow")
def sync_mlflow() -> None:
    """Sync moves to MLflow's tables that a crash left unsynced."""
    sync_pending()
