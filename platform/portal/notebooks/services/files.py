"""Storage of notebooks: every save is a version, and versions never change."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from django.db import IntegrityError, transaction

from portal.accounts import audit
from portal.accounts.models import Project, User
from portal.core.errors import Conflict, InvalidInput, NotFound
from portal.core.text import clean_name
from portal.notebooks.documents import NotebookParts, merge_outputs, split_outputs
from portal.notebooks.models import Content, NotebookFile, NotebookVersion
from portal.storage.ports import StoredBytes
from portal.storage.services import add_file, discard_bytes, open_file, receive_bytes
from slipway.schemas.names import path_error
from slipway.schemas.notebook import is_reserved
from slipway.schemas.notebook_files import MAX_NOTEBOOK_BYTES, Origin

_SUFFIX = ".ipynb"
_MAX_PATH = 500
_TRIES = 5
_MOST_READ_BYTES = 10 * MAX_NOTEBOOK_BYTES


@dataclass(frozen=True)
class SaveResult:
    """The newest version after a save, and whether the save made it."""

    version: NotebookVersion
    is_new: bool


def clean_path(text: str) -> str:
    """Return a path of a notebook inside a project. Raises InvalidInput."""
    path = clean_name(text, field="path", max_length=_MAX_PATH)
    fault = path_error(path)
    if fault is not None:
        raise InvalidInput(
            f"The path of the notebook {fault}.",
            code="bad_path",
            field="path",
            next_step="Write it from the project's folder, for example reports/churn.ipynb.",
        )
    if not path.endswith(_SUFFIX) or path.endswith(f"/{_SUFFIX}") or path == _SUFFIX:
        raise InvalidInput(
            "The path of a notebook ends in .ipynb.",
            field="path",
            next_step="For example reports/churn.ipynb.",
        )
    return path


def clean_workspace_path(text: str) -> str:
    """Return a path of a notebook that notebook servers write to. Raises InvalidInput."""
    path = clean_path(text)
    if is_reserved(path):
        name = path.partition("/")[0]
        raise InvalidInput(
            f"{name} is not a folder of the project's workspace: the name is reserved.",
            code="reserved_name",
            field="path",
            next_step="Choose another folder, for example reports/churn.ipynb.",
        )
    return path


def save_notebook(*, project: Project, by: User, path: str, content: bytes) -> SaveResult:
    """Store a save as the newest version, unless its content is the same.

    Call it outside a transaction. Raises InvalidInput for a bad path or what is no notebook.
    """
    path = clean_workspace_path(path)
    if len(content) > MAX_NOTEBOOK_BYTES:
        raise _too_large()
    halves = split_outputs(content)
    fresh = _receive_missing(project, halves)
    try:
        return _save_version(project, by, path, halves, fresh)
    except BaseException:
        for stored in fresh.values():
            discard_bytes(stored)
        raise


def _receive_missing(project: Project, halves: NotebookParts) -> dict[str, StoredBytes]:
    """Write contents new to the project to the store. Returns them by digest."""
    halves_by_digest = {
        _digest(half): half for half in (halves.source, halves.outputs) if half is not None
    }
    contents = Content.objects.filter(project=project, digest__in=halves_by_digest)
    known = set(contents.values_list("digest", flat=True))
    return {
        digest: receive_bytes(chunks=[half])
        for digest, half in halves_by_digest.items()
        if digest not in known
    }


def _digest(half: bytes) -> str:
    return hashlib.sha256(half).hexdigest()


def _save_version(
    project: Project, by: User, path: str, halves: NotebookParts, fresh: Mapping[str, StoredBytes]
) -> SaveResult:
    with transaction.atomic():
        file, _ = NotebookFile.objects.get_or_create(
            project=project, path=path, deleted_at=None, defaults={"created_by": by}
        )
        source = _content(file, by, halves.source, fresh)
        outputs = None if halves.outputs is None else _content(file, by, halves.outputs, fresh)
        latest = file.versions.filter(number=file.head).first()
        same = (source.pk, outputs.pk if outputs else None)
        if latest is not None and (latest.source_id, latest.outputs_id) == same:
            return SaveResult(latest, is_new=False)
        made = NotebookVersion(
            source=source, outputs=outputs, cells=halves.cells, parameters=halves.parameters
        )
        return SaveResult(_add(file=file, by=by, origin="save", made=made), is_new=True)


def _content(
    file: NotebookFile, by: User, half: bytes, fresh: Mapping[str, StoredBytes]
) -> Content:
    """Return the content row of these bytes, created if the project has none."""
    digest = _digest(half)
    # Locked, so that the task which deletes unreferenced contents sees the version to be added.
    contents = Content.objects.select_for_update(no_key=True).filter(
        project=file.project, digest=digest
    )
    known = contents.first()
    stored = fresh.get(digest)
    if known is None and stored is not None:
        try:
            with transaction.atomic():
                kept = add_file(
                    project=file.project, by=by, name=_file_name(file.path), stored=stored
                )
                return Content.objects.create(project=file.project, digest=digest, file=kept)
        except IntegrityError:
            known = contents.first()
    if known is None:
        raise Conflict(
            "The notebook's stored content was being removed.", next_step="Save it again."
        )
    if stored is not None:  # the same content was saved concurrently
        transaction.on_commit(partial(discard_bytes, stored))
    return known


def _file_name(path: str) -> str:
    return path.rpartition("/")[2][-255:]


def _add(*, file: NotebookFile, by: User, origin: Origin, made: NotebookVersion) -> NotebookVersion:
    """Assign a version the next number. Call it inside the transaction of the change."""
    for _ in range(_TRIES):
        seen = file.head
        if NotebookFile.objects.advance(file.pk, seen=seen):
            break
        file.refresh_from_db(fields=["head", "deleted_at"])
    else:
        was_deleted = file.deleted_at is not None
        raise Conflict(
            "The notebook has been deleted."
            if was_deleted
            else "Too many people are saving this notebook at once.",
            next_step="Save it again.",
        )
    file.head = seen + 1
    made.file, made.number, made.origin, made.created_by = file, seen + 1, origin, by
    made.save(force_insert=True)
    audit.record(
        f"notebook.{origin}",
        kind="notebook",
        target=file,
        label=file.path,
        project=file.project,
        after={"version": made.number, "source": made.source.digest},
    )
    return made


def version_of(file: NotebookFile, number: int | None) -> NotebookVersion:
    """Return a version of a notebook, the newest unless named. Raises InvalidInput."""
    head = file.head if number is None else number
    notebook_version = file.versions.complete().filter(number=head).first()
    if notebook_version is None:
        raise InvalidInput(
            f"The notebook has no version {head}.",
            code="no_such_version",
            field="version",
            next_step=f"Its versions are 1 to {file.head}.",
        )
    version: NotebookVersion = notebook_version
    return version


def read_version(version: NotebookVersion, *, with_outputs: bool = True) -> bytes:
    """Return a version as the .ipynb that was saved, optionally without outputs."""
    source = b"".join(open_file(file=version.source.file))
    if not with_outputs or version.outputs is None:
        return source
    return merge_outputs(source, b"".join(open_file(file=version.outputs.file)))


def restore_version(*, version: NotebookVersion, by: User) -> NotebookVersion:
    """Make an old version the newest again, as a version of its own. The ones between stay."""
    with transaction.atomic():
        file = NotebookFile.objects.select_for_update(no_key=True).get(pk=version.file_id)
        if version.number == file.head:
            return version
        return _add(file=file, by=by, origin="restore", made=_copy_of(version))


def branch_version(*, version: NotebookVersion, path: str, by: User) -> NotebookVersion:
    """Begin a new notebook as a version of another. Raises Conflict when its path is taken."""
    path = clean_workspace_path(path)
    project = version.file.project
    with transaction.atomic():
        file, made = NotebookFile.objects.get_or_create(
            project=project, path=path, deleted_at=None, defaults={"created_by": by}
        )
        if not made:
            raise Conflict(
                f"A notebook {path} already exists.",
                code="path_taken",
                field="path",
                next_step="Choose another path.",
            )
        return _add(file=file, by=by, origin="branch", made=_copy_of(version))


def _copy_of(version: NotebookVersion) -> NotebookVersion:
    return NotebookVersion(
        source=version.source,
        outputs=version.outputs,
        cells=version.cells,
        parameters=version.parameters,
        origin_version=version,
    )


def notebook_at(project: Project, path: str) -> NotebookFile:
    """Return a notebook by its path. Raises NotFound."""
    file = NotebookFile.objects.of_project(project).current().filter(path=path).first()
    if file is None:
        raise NotFound
    return file


def bytes_of(pieces: Iterator[bytes]) -> bytes:
    """Return a body that is not too large for a notebook. Raises InvalidInput."""
    body, size = bytearray(), 0
    for piece in pieces:
        size += len(piece)
        if size <= MAX_NOTEBOOK_BYTES:
            body += piece
        elif size > _MOST_READ_BYTES:
            break
        # Otherwise read and drop the rest: a client that is cut off never sees the reason.
    if size > MAX_NOTEBOOK_BYTES:
        raise _too_large()
    return bytes(body)


def _too_large() -> InvalidInput:
    return InvalidInput(
        f"The notebook has more than {MAX_NOTEBOOK_BYTES // 1024**2} MiB.",
        code="notebook_too_large",
        field="content",
        next_step="Clear large outputs, or write images and tables to files.",
    )
