"""Taking in code snapshots."""

from collections.abc import Iterable

from django.db import transaction

from portal.accounts.models import Project, User
from portal.core.errors import InvalidInput, TooLarge
from portal.storage.backend import blob_store
from portal.storage.ports import StoredBytes, UploadDeclaration
from portal.storage.services import add_file, discard_bytes, receive_bytes
from portal.training.file_index import contains_name, marks_of, names_in
from portal.training.models import Snapshot
from slipway.schemas.notebook import SUFFIX, script_name
from slipway.schemas.training import script_file
from slipway.schemas.truncation import join_names, shorten_name

MAX_SNAPSHOT_BYTES = 500 * 1024**2
_SUGGESTED = 20


def ingest_snapshot(
    *, project: Project, by: User, chunks: Iterable[bytes], promised: UploadDeclaration
) -> Snapshot:
    """Store a stream of bytes as a snapshot. The same bytes are the same snapshot of the project.

    Call it outside a transaction: it waits for the network. Raises TooLarge before the first byte
    is read when the promised size is over the limit, InvalidInput for a broken promise and for what
    is no archive of code. Then nothing is stored.
    """
    if promised.size_bytes is not None and promised.size_bytes > MAX_SNAPSHOT_BYTES:
        raise _too_large(f"has {promised.size_bytes // 1024**2} MiB")
    stored = receive_bytes(
        chunks=_bounded(chunks), promised=promised, limit_bytes=MAX_SNAPSHOT_BYTES
    )
    try:
        return store_snapshot(project=project, by=by, stored=stored)
    except BaseException:
        discard_bytes(stored)
        raise


def _bounded(chunks: Iterable[bytes]) -> Iterable[bytes]:
    """Pass a stream on. Raises TooLarge with our message when it exceeds the limit."""
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if size > MAX_SNAPSHOT_BYTES:
            raise _too_large(f"has more than {MAX_SNAPSHOT_BYTES // 1024**2} MiB")
        yield chunk


def store_snapshot(*, project: Project, by: User, stored: StoredBytes) -> Snapshot:
    """Make received bytes a snapshot of the project. Call it outside a transaction.

    Raises InvalidInput for what is no archive of code.
    """
    known = snapshot_of(project, stored.sha256)
    if known is not None:
        discard_bytes(stored)
        return known
    # Read from the store before the transaction, because the store may be far away.
    names = names_in(blob_store().read(stored.key, start=0, length=stored.size_bytes))
    with transaction.atomic():
        file = add_file(
            project=project, by=by, name=f"snapshot-{stored.sha256[:12]}.tar", stored=stored
        )
        snapshot, fresh = Snapshot.objects.get_or_create(
            project=project,
            digest=stored.sha256,
            defaults={
                "file": file,
                "files": len(names),
                "scripts": [name for name in names if name.endswith(".py")][:_SUGGESTED],
                "marks": marks_of(names),
                "created_by": by,
            },
        )
        if not fresh:  # the same bytes were uploaded concurrently: retain that copy
            file.delete()
    return snapshot


def snapshot_of(project: Project, digest: str) -> Snapshot | None:
    """Return the snapshot of that digest, if this project has it."""
    snapshots = Snapshot.objects.filter(project=project, digest=digest)
    return snapshots.select_related("file__blob").first()


def no_such_snapshot() -> InvalidInput:
    """Return the error for a digest of which the project has no snapshot."""
    return InvalidInput(
        "There is no such snapshot in this project.",
        code="no_such_snapshot",
        field="snapshot",
        next_step="Upload the code first (`slipway train` does this).",
    )


def require_script(snapshot: Snapshot, script: str, *, ranks: int = 1) -> None:
    """Raise InvalidInput when the snapshot has no such file, or it is a notebook for many ranks."""
    script = script_file(script)
    marks = bytes(snapshot.marks)
    if script.endswith(SUFFIX) and ranks > 1 and contains_name(script, marks):
        made = script_name(script)
        raise InvalidInput(
            f"{script} is a notebook, which runs as one process; {ranks} were requested.",
            code="notebook_on_many_ranks",
            field="script",
            next_step=f"Use {made}, the script of its cells."
            if contains_name(made, marks)
            else "Use one node and one process, or submit it with `slipway train`.",
        )
    if contains_name(script, marks):
        return
    near = join_names([shorten_name(name, 200) for name in snapshot.scripts], 5)
    raise InvalidInput(
        f"The snapshot has no {script}.",
        code="no_such_script",
        field="script",
        next_step=f"Scripts in it: {near}." if near else "Add the script and submit.",
    )


def _too_large(message: str) -> TooLarge:
    return TooLarge(
        f"The snapshot {message}; at most {MAX_SNAPSHOT_BYTES // 1024**2} MiB are allowed.",
        code="snapshot_too_large",
        field="snapshot",
        next_step="Leave data and models out of it: list them in a .slipwayignore file.",
    )
