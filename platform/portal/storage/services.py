"""Services for files. The gates have authorized the caller before."""

from collections.abc import Iterable, Iterator
from datetime import timedelta
from functools import partial
from itertools import chain

import structlog
from django.db import IntegrityError, models, transaction

from portal.accounts import audit
from portal.accounts.models import Project, User
from portal.accounts.principal import Principal
from portal.core import clock
from portal.core.errors import Conflict, InvalidInput, NotFound, SlipwayError, Unavailable
from portal.core.text import clean_name
from portal.storage.backend import blob_store
from portal.storage.digests import verified
from portal.storage.errors import FileDamaged
from portal.storage.models import Blob, StoredFile
from portal.storage.ports import BytesMissing, StoredBytes, UploadDeclaration
from portal.storage.signing import Grant, SignedLink, sign
from slipway.schemas.names import path_error

log = structlog.get_logger(__name__)
MAX_FILE_BYTES = 64 * 1024**3
_NO_PROMISE = UploadDeclaration()


def clean_file_name(name: str) -> str:
    """Return a valid file name. Raise InvalidInput, also for what looks like a path."""
    name = clean_name(name, max_length=255)
    fault = "has a slash in it" if "/" in name else path_error(name)
    if fault is not None:
        raise InvalidInput(
            f"The name of the file {fault}.",
            code="bad_path",
            field="name",
            next_step="Send only the last part of the path, for example train.csv.",
        )
    return name


def store_file(
    *,
    project: Project,
    by: User,
    name: str,
    chunks: Iterable[bytes],
    promised: UploadDeclaration = _NO_PROMISE,
) -> StoredFile:
    """Store a stream as a file of the project. Call it outside a transaction.

    Raises InvalidInput for a bad name or a wrong declaration, TooLarge, Unavailable. Then nothing
    is stored.
    """
    name = clean_file_name(name)
    stored = receive_bytes(chunks=chunks, promised=promised)
    try:
        return add_file(project=project, by=by, name=name, stored=stored)
    except SlipwayError:
        discard_bytes(stored)
        raise


def receive_bytes(
    *,
    chunks: Iterable[bytes],
    promised: UploadDeclaration = _NO_PROMISE,
    limit_bytes: int | None = None,
) -> StoredBytes:
    """Write a stream to the store, where it is not visible until `add_file`.

    For callers that commit something else together with the file. `limit_bytes` is that of any
    file unless given. Bytes that are neither kept nor discarded are removed by the sweep after a
    day.
    """
    limit_bytes = MAX_FILE_BYTES if limit_bytes is None else limit_bytes
    return blob_store().put(chunks, promised=promised, limit_bytes=limit_bytes)


def discard_bytes(stored: StoredBytes) -> None:
    """Delete received bytes that were not kept. During an outage they are left to the sweep."""
    _delete_bytes(stored.key)


def add_file(
    *,
    project: Project,
    by: User,
    name: str,
    stored: StoredBytes,
    file_id: str | None = None,
    is_audited: bool = True,
) -> StoredFile:
    """Add a file of received bytes to the project, in one transaction.

    `file_id` is an id that was issued before (by an upload link). Files that a machine stores
    automatically many times an hour need not be audited. Raises InvalidInput for a bad name,
    Conflict when that id is taken.
    """
    name = clean_file_name(name)
    with transaction.atomic():
        blob = Blob.objects.claim(stored)
        file = StoredFile(project=project, blob=blob, name=name, created_by=by)
        file.pk = file_id or file.pk
        _insert(file)
        if is_audited:
            audit.record(
                "file.create",
                kind="file",
                target=file,
                label=name,
                project=project,
                after={"sha256": blob.sha256, "size_bytes": blob.size_bytes},
            )
        if blob.key != stored.key:
            transaction.on_commit(partial(_delete_bytes, stored.key))
    return file


def _insert(file: StoredFile) -> None:
    try:
        with transaction.atomic():
            file.save(force_insert=True)
    except IntegrityError as error:
        raise Conflict(
            "This link was already used for an upload.",
            code="link_used",
            next_step="Ask for a new link.",
        ) from error


def open_file(*, file: StoredFile, start: int = 0, length: int | None = None) -> Iterator[bytes]:
    """Return the bytes of a file as a stream in constant memory.

    The whole file is verified on the way: the last chunk comes only when the digest is right, and
    FileDamaged is raised in its place otherwise. A range (`length` bytes from `start`, which must
    lie inside the file) is checked for its length alone. Raises FileDamaged or Unavailable at once
    when the first chunk cannot be read.
    """
    blob = file.blob
    length = blob.size_bytes - start if length is None else length
    if start < 0 or length < 0 or start + length > blob.size_bytes:
        raise InvalidInput(
            f"The file has {blob.size_bytes} bytes; this range is outside the file.",
            code="range_outside_file",
            field="range",
            next_step="Ask for a range inside the file.",
        )
    stream = _watched(blob, start, length)
    first = next(stream, b"")
    return chain([first], stream) if first else stream


def _watched(blob: Blob, start: int, length: int) -> Iterator[bytes]:
    """Yield a range of a blob. Mark a damaged one, so that an upload can repair it."""
    chunks = blob_store().read(blob.key, start=start, length=length)
    is_whole = length == blob.size_bytes
    try:
        if is_whole:
            yield from verified(chunks, sha256=blob.sha256, size_bytes=blob.size_bytes)
        else:
            yield from _exactly(chunks, length)
    except (BytesMissing, FileDamaged) as error:
        log.exception("file_damaged", blob=blob.pk, key=blob.key)
        Blob.objects.filter(pk=blob.pk, key=blob.key).update(damaged_at=clock.now())
        if isinstance(error, FileDamaged):
            raise
        raise FileDamaged("The stored bytes of this file are gone.") from error


def _exactly(chunks: Iterable[bytes], length: int) -> Iterator[bytes]:
    for chunk in chunks:
        length -= len(chunk)
        yield chunk
    if length:
        raise FileDamaged(f"The stored bytes of this file end {length} bytes too early.")


def delete_file(*, file: StoredFile) -> None:
    """Delete a file from its project.

    Its bytes are freed later, by the sweep, once no file refers to them. The number of bytes freed
    is not reported, since it would disclose whether another project has the same bytes. Raises
    NotFound when the file is gone already, Conflict when something else of the project still uses
    it.
    """
    try:
        with transaction.atomic():
            deleted, _ = StoredFile.objects.filter(pk=file.pk).delete()
            if not deleted:
                raise NotFound
            audit.record(
                "file.delete",
                kind="file",
                target=file,
                label=file.name,
                project=file.project,
                before={"sha256": file.blob.sha256, "size_bytes": file.blob.size_bytes},
            )
    except models.ProtectedError as error:
        raise Conflict(
            f"The file is still used by {len(error.protected_objects)} other objects.",
            code="file_in_use",
            next_step="Delete what uses it first.",
        ) from error


def link_to_download(*, file: StoredFile, by: Principal, lifetime: timedelta) -> SignedLink:
    """Create a link to a file's bytes. Raise InvalidInput over 15 minutes."""
    grant = Grant(method="GET", file_id=file.pk, expires_at=clock.now() + lifetime)
    return _audited(sign(grant, by=by), file)


def link_to_upload(
    *, project: Project, by: Principal, name: str, lifetime: timedelta
) -> SignedLink:
    """Create a link that uploads one file of that name once. Raise InvalidInput over 15 minutes."""
    file = StoredFile(project=project, name=clean_file_name(name))
    grant = Grant(
        method="PUT",
        file_id=file.pk,
        expires_at=clock.now() + lifetime,
        project_id=project.pk,
        name=file.name,
    )
    return _audited(sign(grant, by=by), file)


def _audited(link: SignedLink, file: StoredFile) -> SignedLink:
    audit.record(
        "file.link",
        kind="file",
        target=file,
        label=file.name,
        project=file.project,
        after={"method": link.grant.method, "expires_at": link.grant.expires_at.isoformat()},
    )
    return link


def _delete_bytes(key: str) -> None:
    try:
        blob_store().delete(key)
    except Unavailable:
        log.warning("blob_deletion_deferred", key=key)
