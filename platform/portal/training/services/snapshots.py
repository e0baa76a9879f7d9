"""Taking in code snapshots, and giving them to the nodes that run them."""

import tarfile
from collections.abc import Iterator
from io import BufferedReader, RawIOBase

from django.db import transaction

from portal.accounts.models import Project, User
from portal.compute.models import Node
from portal.core.errors import InvalidInput, NotFound, TooLarge
from portal.storage.models import StoredFile
from portal.storage.ports import StoredBytes
from portal.storage.services import keep_file, open_file
from portal.training.models import Snapshot
from portal.workloads.models import Lease

MAX_SNAPSHOT_BYTES = 500 * 1024**2
MAX_FILES = 50_000
_NAMES_KEPT = 2_000


class _Stream(RawIOBase):
    """A file that reads from an iterator of bytes."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        if not self._rest:
            self._rest = next(self._chunks, b"")
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count


def _refused(message: str) -> InvalidInput:
    return InvalidInput(
        message,
        code="bad_snapshot",
        field="snapshot",
        next_step="Make the snapshot with `slipway train`, which packs the folder rightly.",
    )


def names_in(chunks: Iterator[bytes]) -> list[str]:
    """Return the files of a snapshot, refusing whatever does not belong in one.

    Raises InvalidInput for links, devices, absolute paths, `..`, and for what is no tar at all.
    Nothing is written; the node that unpacks checks again.
    """
    names: list[str] = []
    try:
        with tarfile.open(fileobj=BufferedReader(_Stream(chunks), 1 << 20), mode="r|") as archive:
            for member in archive:
                if member.isdir():
                    continue
                _check_member(member)
                names.append(member.name)
                if len(names) > MAX_FILES:
                    raise _refused(f"The snapshot has more than {MAX_FILES} files.")
    except (tarfile.TarError, EOFError, UnicodeDecodeError, ValueError) as error:
        raise _refused(f"The snapshot is not a readable tar ({error}).") from error
    if not names:
        raise _refused("The snapshot holds no file.")
    return names


def _check_member(member: tarfile.TarInfo) -> None:
    parts = member.name.split("/")
    if not member.isreg():
        raise _refused(f"{member.name[:200]!r} in the snapshot is neither a file nor a folder.")
    if member.name.startswith("/") or "\\" in member.name or ".." in parts or "" in parts:
        raise _refused(f"{member.name[:200]!r} is not a path inside the snapshot.")


def keep_snapshot(*, project: Project, by: User, stored: StoredBytes) -> Snapshot:
    """Make received bytes a snapshot of the project; the same bytes are the same snapshot."""
    if stored.size_bytes > MAX_SNAPSHOT_BYTES:
        raise TooLarge(
            f"The snapshot has {stored.size_bytes // 1024**2} MiB; "
            f"at most {MAX_SNAPSHOT_BYTES // 1024**2} MiB are allowed.",
            code="snapshot_too_large",
            field="snapshot",
            next_step="Leave data and models out of it (a .slipwayignore file names them).",
        )
    known = Snapshot.objects.filter(project=project, digest=stored.sha256).first()
    if known is not None:
        return known
    with transaction.atomic():
        file = keep_file(
            project=project, by=by, name=f"{stored.sha256[:12]}.snapshot.tar", stored=stored
        )
        names = names_in(open_file(file=file))
        snapshot, _ = Snapshot.objects.get_or_create(
            project=project,
            digest=stored.sha256,
            defaults={
                "file": file,
                "files": len(names),
                "names": names[:_NAMES_KEPT],
                "created_by": by,
            },
        )
    return snapshot


def require_script(snapshot: Snapshot, script: str) -> None:
    """Raise InvalidInput when the snapshot has no such file."""
    if script in snapshot.names:
        return
    if snapshot.files > len(snapshot.names) and script in names_in(open_file(file=snapshot.file)):
        return
    near = [name for name in snapshot.names if name.endswith(".py")][:5]
    raise InvalidInput(
        f"There is no {script} in the snapshot.",
        code="no_such_script",
        field="script",
        next_step=f"Scripts in it: {', '.join(near)}." if near else "Add the script and submit.",
    )


def snapshot_for_node(*, node: Node, digest: str) -> StoredFile:
    """Return the snapshot a node needs for a task it holds a lease on; raises NotFound else."""
    leases = Lease.objects.open().filter(node=node, workload__snapshot=digest)
    lease = leases.select_related("workload").first()
    if lease is None:
        raise NotFound
    found = Snapshot.objects.filter(project=lease.workload.project_id, digest=digest)
    snapshot = found.select_related("file__blob").first()
    if snapshot is None:
        raise NotFound
    return snapshot.file
