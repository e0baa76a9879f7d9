"""Deletion of Optuna storages.

A request marks the storage, which ends it for everybody at once. The control worker then deletes
its rows in batches, so neither a long log nor a restart matters.
"""

from threading import Lock

import structlog
from django.db import models, transaction

from portal.accounts import audit
from portal.core import clock
from portal.core.errors import Conflict, NotFound
from portal.sweeps.models import OptunaLogEntry, OptunaStorage, OptunaStudy, OptunaTrial
from portal.workloads.models import Workload

log = structlog.get_logger(__name__)
_BATCH = 1000
# Rows that one call deletes at most, about two seconds.
_MOST_ROWS = 40_000
_lock = Lock()


def delete_storage(*, storage: OptunaStorage) -> None:
    """Delete a storage with its studies and trials. Jobs stay.

    Raises Conflict while a job that has appended to it has not ended, and NotFound if somebody else
    has deleted it.
    """
    live = OptunaStorage.objects.live().filter(pk=storage.pk)
    with transaction.atomic():
        # An append holds this lock until its commit, so its job is seen below.
        if live.select_for_update(no_key=True).first() is None:
            raise NotFound
        job = newest_open_job(storage)
        if job is not None:
            raise Conflict(
                f"The job {job.name} ({job.pk}) has written to the storage {storage.name} and has "
                "not ended.",
                code="storage_in_use",
                next_step=f"Wait for its end or cancel it, slipway job cancel {job.pk}, then "
                "delete the storage.",
            )
        live.update(deleted_at=clock.now())
        audit.record(
            "optuna_storage.delete",
            target=storage,
            label=storage.name,
            kind="optuna_storage",
            project=storage.project,
        )


def newest_open_job(storage: OptunaStorage) -> Workload | None:
    """Return the newest job that has appended to the storage and has not ended, or None."""
    entries = OptunaLogEntry.objects.filter(storage=storage, job_id=models.OuterRef("pk"))
    workloads = Workload.objects.unfinished().filter(project_id=storage.project_id)
    return workloads.filter(models.Exists(entries)).order_by("-pk").first()


def purge_deleted() -> int:
    """Delete rows of deleted storages, 40,000 at most. Return their number.

    Each batch is a transaction, so a call that is killed is continued by the next one. One thread
    at a time does so: a second one returns at once.
    """
    if not _lock.acquire(blocking=False):
        return 0
    try:
        rows = 0
        for storage in OptunaStorage.objects.deleted().order_by("pk"):
            # In the order of an index or of none: a sort would read all rows for each batch.
            for queryset in (
                OptunaLogEntry.objects.filter(storage=storage).order_by("number"),
                OptunaTrial.objects.filter(study__storage=storage).order_by(),
                OptunaStudy.objects.filter(storage=storage).order_by("number"),
            ):
                while keys := list(queryset.values_list("pk", flat=True)[:_BATCH]):
                    if rows >= _MOST_ROWS:
                        return rows
                    queryset.model.objects.filter(pk__in=keys).delete()
                    rows += len(keys)
            storage.delete()
            log.info("optuna_storage_purged", storage=storage.pk)
        return rows
    finally:
        _lock.release()
