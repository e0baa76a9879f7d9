"""Appending to the log of an Optuna storage, and reading it."""

from collections.abc import Sequence

from django.db import transaction
from django.db.models import F
from django.db.models.functions import Length

from portal.accounts import audit
from portal.accounts.models import Project
from portal.accounts.principal import Principal
from portal.core.bulk_insert import insert_rows
from portal.core.errors import Conflict
from portal.core.text import clean_slug
from portal.sweeps.log_entries import checked_entry
from portal.sweeps.models import OptunaLogEntry, OptunaStorage
from portal.training.models import Job
from slipway.schemas.studies import (
    MAX_ENTRIES,
    MAX_SIZE_BYTES,
    MAX_STORAGES,
    LogAppended,
    LogOut,
)

# Bytes of entries in one response, beyond the first of them.
_RESPONSE_BYTES = 4 * 1024**2


def append_entries(
    *,
    project: Project,
    principal: Principal,
    name: str,
    entries: Sequence[str],
    storage_id: str | None = None,
) -> LogAppended:
    """Append entries to the storage of that name, which the first call creates.

    They get consecutive numbers: the UPDATE locks the row of the storage until the commit, so
    readers never see a gap. With `storage_id` the storage must be that one. Raises InvalidInput for
    an entry that Optuna could not replay, and Conflict for a storage that is full or was deleted.
    """
    texts = [checked_entry(text, at=at) for at, text in enumerate(entries)]
    count, size_bytes = len(texts), sum(map(len, texts))
    job = _job_of(principal)
    with transaction.atomic():
        storage = _storage(project, principal, name, storage_id)
        row = OptunaStorage.objects.live().filter(pk=storage.pk)
        has_room = row.filter(
            length__lte=MAX_ENTRIES - count, size_bytes__lte=MAX_SIZE_BYTES - size_bytes
        )
        if not has_room.update(length=F("length") + count, size_bytes=F("size_bytes") + size_bytes):
            raise _full(name) if row.exists() else storage_deleted(name)
        length = row.values_list("length", flat=True).get()
        first = length - count
        insert_rows(
            OptunaLogEntry,
            ["storage_id", "number", "text", "job_id"],
            [(storage.pk, first + at, text, job) for at, text in enumerate(texts)],
        )
    return LogAppended(first=first, length=length, storage_id=storage.pk)


def read_entries(
    storage: OptunaStorage, *, first: int, limit: int, storage_id: str | None = None
) -> LogOut:
    """Return entries from number `first` on, fewer than `limit` if they are long.

    With `storage_id` the storage must be that one. Raises Conflict if it was deleted, and for a
    number beyond the next entry, which a reader of this storage cannot have.
    """
    if storage_id is not None and storage_id != storage.pk:
        raise storage_deleted(storage.name)
    rows = OptunaLogEntry.objects.filter(storage=storage, number__gte=first).order_by("number")
    sizes = rows.values_list(Length("text"), flat=True)[:limit]
    count, total = 0, 0
    for size in sizes:
        total += size
        if count and total > _RESPONSE_BYTES:
            break
        count += 1
    entries = list(rows.values_list("text", flat=True)[:count])
    following = first + len(entries)
    # After the entries: they are deleted only once the storage is no longer live.
    live = OptunaStorage.objects.live().filter(pk=storage.pk)
    length = live.values_list("length", flat=True).first()
    if length is None or first > length:
        raise storage_deleted(storage.name)
    return LogOut(entries=entries, next=following, length=length, storage_id=storage.pk)


def storage_deleted(name: str) -> Conflict:
    """Return the error for a client that has read a storage which was deleted since."""
    return Conflict(
        f"The storage {name} was deleted while it was used, and its studies with it.",
        code="storage_deleted",
        next_step="Start the script again: its study then begins in a new storage.",
    )


def _storage(
    project: Project, principal: Principal, name: str, storage_id: str | None
) -> OptunaStorage:
    storages = OptunaStorage.objects.of_project(project)
    storage = storages.filter(name=name).first()
    if storage_id is not None and (storage is None or storage.pk != storage_id):
        raise storage_deleted(name)
    if storage is not None:
        return storage
    clean_slug(name, field="storage")
    if storages.count() >= MAX_STORAGES:
        raise Conflict(
            f"The project has {MAX_STORAGES} Optuna storages, the most that it may have.",
            code="too_many_storages",
            next_step="Use one of them: a storage holds any number of studies. Or delete one: "
            "slipway optuna delete STORAGE.",
        )
    storage, is_new = storages.get_or_create(
        project=project, name=name, defaults={"created_by": principal.user}
    )
    if is_new:
        audit.record(
            "optuna_storage.create",
            target=storage,
            label=storage.name,
            kind="optuna_storage",
            project=project,
        )
    return storage


def _job_of(principal: Principal) -> str | None:
    """Return the id of the job whose token made the request, or None."""
    if principal.token is None:
        return None
    return Job.objects.filter(pk=principal.token.pk).values_list("pk", flat=True).first()


def _full(name: str) -> Conflict:
    return Conflict(
        f"The storage {name} is full: it holds {MAX_ENTRIES} entries or "
        f"{MAX_SIZE_BYTES // 1024**2} MiB.",
        code="storage_full",
        next_step='Go on in another one: slipway.optuna_storage("NAME"). Delete this one when its '
        f"studies are no longer needed: slipway optuna delete {name}.",
    )
