"""Inspects the files of a version: signature, example, the digest of each file.

Files are read and hashed, never loaded. Small models are inspected on the first request, the
digests of large ones are computed by a worker.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db.models import Q

from portal.core import clock
from portal.core.enqueue import CeleryTask, enqueue_on_commit
from portal.core.errors import InvalidInput
from portal.registry.adapters.artifacts import artifact_files
from portal.registry.artifact_uri import folder_of
from portal.registry.catalog import VersionFacts
from portal.registry.mlmodel import MAX_BYTES, BadModelFile, Description, read_mlmodel
from portal.registry.models import VersionRecord
from portal.registry.ports import FilesUnreadable, ModelFolderFile
from portal.registry.single_file_models import find_bare
from slipway.schemas.serving import ModelFormat

MAX_FILES = 5_000
MAX_EXAMPLE_BYTES = 64 * 1024
# Models up to this size are hashed within the request, which takes about 0.1 s.
_AT_ONCE_BYTES = 48 * 1024**2
_TRY_AGAIN_AFTER = timedelta(seconds=20)
_PER_SWEEP = 20


def examine(record: VersionRecord, details: VersionFacts, *, later: CeleryTask) -> VersionRecord:
    """Return the record with the content of its files, read now unless that was done before.

    The task `later` is enqueued for the digests of a large model. Call it outside a transaction.
    """
    if record.read_at is not None and not (record.fault and _is_due(record)):
        return record
    try:
        folder = folder_of(details.project_id, details.location)
        model_folder_files = artifact_files().files(folder, limit=MAX_FILES + 1)
        value = _inspect_files(record, folder, model_folder_files)
    except (FilesUnreadable, BadModelFile) as error:
        return _note(record, fault=f"The files of this version cannot be read: {error}.")
    except InvalidInput:
        return _note(record, fault="The files of this version are outside this project.")
    _note(
        record,
        fault="",
        format=value.format,
        entry=value.entry,
        flavors=value.flavors,
        signature=value.signature,
        example=value.example,
        noted_batching=value.batching,
        files=[[file.path, file.size_bytes, ""] for file in model_folder_files],
        hashed_at=None,
    )
    if sum(file.size_bytes for file in model_folder_files) <= _AT_ONCE_BYTES:
        return hash_files(record, details)
    enqueue_on_commit(later, record.pk)
    return record


def _is_due(record: VersionRecord) -> bool:
    return record.read_at is None or record.read_at < clock.now() - _TRY_AGAIN_AFTER


def _note(record: VersionRecord, **changes: object) -> VersionRecord:
    changes["read_at"] = clock.now()
    for name, value in changes.items():
        setattr(record, name, value)
    VersionRecord.objects.filter(pk=record.pk).update(**changes)
    return record


@dataclass(frozen=True)
class _InspectedFiles:
    """Content of the files of a version."""

    format: ModelFormat
    flavors: list[str]
    signature: dict[str, Any] | None
    entry: str = ""
    example: str = ""
    batching: str = ""


def _inspect_files(
    record: VersionRecord, folder: str, model_folder_files: Sequence[ModelFolderFile]
) -> _InspectedFiles:
    """Read the files of a version. Raises BadModelFile, FilesUnreadable."""
    if len(model_folder_files) > MAX_FILES:
        raise BadModelFile(f"there are more than {MAX_FILES} of them")
    model_format = ModelFormat(record.given_format) if record.given_format else None
    if any(file.path == "MLmodel" for file in model_folder_files):
        if model_format not in (None, ModelFormat.MLFLOW):
            raise BadModelFile(f"they are an MLflow model, but the format given is {model_format}")
        described, example = _read_mlmodel_file(folder, model_folder_files)
        return _InspectedFiles(
            ModelFormat.MLFLOW,
            described.flavors,
            described.signature,
            example=example,
            batching=described.batching,
        )
    bare = find_bare(artifact_files(), folder, model_folder_files, model_format)
    signature = record.given_signature or bare.signature
    return _InspectedFiles(bare.format, [bare.format.value], signature, bare.entry)


def _read_mlmodel_file(
    folder: str, model_folder_files: Sequence[ModelFolderFile]
) -> tuple[Description, str]:
    """Return the content of the MLmodel file, and the recorded example as text."""
    store = artifact_files()
    described = read_mlmodel(store.head(folder, "MLmodel", limit_bytes=MAX_BYTES + 1))
    path = described.example_path
    sizes = {file.path: file.size_bytes for file in model_folder_files}
    if path is None or sizes.get(path, MAX_EXAMPLE_BYTES + 1) > MAX_EXAMPLE_BYTES:
        return described, ""
    content = store.head(folder, path, limit_bytes=MAX_EXAMPLE_BYTES)
    try:
        return described, content.decode("utf-8").replace("\0", "")
    except UnicodeDecodeError:
        return described, ""


def hash_files(record: VersionRecord, details: VersionFacts) -> VersionRecord:
    """Compute the digest of every file of a version. Idempotent."""
    store = artifact_files()
    try:
        folder = folder_of(details.project_id, details.location)
        files = [[path, size, store.sha256(folder, path)] for path, size, _ in record.files]
    except (FilesUnreadable, InvalidInput) as error:
        return _note(record, fault=f"The files of this version cannot be read: {error}.")
    return _note(record, files=files, hashed_at=clock.now())


def digest_of(record: VersionRecord) -> str | None:
    """Return one digest over all files of a version, or None until all are hashed."""
    if record.hashed_at is None:
        return None
    digest = hashlib.sha256()
    for path, size, sha256 in record.files:
        digest.update(f"{sha256} {size} {path}\n".encode())
    return digest.hexdigest()


def records_without_digests() -> list[VersionRecord]:
    """Return some records whose files are listed and not hashed yet, oldest first."""
    waiting = VersionRecord.objects.filter(Q(fault=""), read_at__isnull=False, hashed_at=None)
    return list(waiting.select_related("line").order_by("pk")[:_PER_SWEEP])
