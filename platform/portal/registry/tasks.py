"""Doorbells of the room."""

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
    """Count the digests of the files of one version, unless that was done before."""
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
    """Do what a lost ring left undone."""
    for record in waiting_for_digests():
        hash_version(record.pk)


@doorbell("registry.tell_mlflow")
def tell_mlflow() -> None:
    """Tell MLflow's tables of the moves that a crash kept from them."""
    tell_waiting()
