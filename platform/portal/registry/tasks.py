"""Background tasks of this app."""

from datetime import timedelta

from portal.core.enqueue import doorbell
from portal.core.errors import NotFound
from portal.registry.catalog import find_version
from portal.registry.mlflow_sync import tell_waiting
from portal.registry.model_inspection import hash_files, waiting_for_digests
from portal.registry.models import VersionRecord

PERIODIC = {
    "registry.hash_waiting": timedelta(minutes=1),
    "registry.tell_mlflow": timedelta(seconds=10),
}


@doorbell("registry.hash_version")
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


@doorbell("registry.hash_waiting")
def hash_waiting() -> None:
    """Compute digests whose task was lost."""
    for record in waiting_for_digests():
        hash_version(record.pk)


@doorbell("registry.tell_mlflow")
def tell_mlflow() -> None:
    """Sync moves to MLflow's tables that a crash left unsynced."""
    tell_waiting()
