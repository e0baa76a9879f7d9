"""Wheels and source archives of a project's code, which nodes install by their digests."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from portal.accounts.models import Project
from portal.compute.models import Node
from portal.compute.services.environments import archives_named_by
from portal.core.errors import InvalidInput, NotFound
from portal.storage.models import StoredFile
from portal.storage.services import open_file
from portal.workloads.models import PackageArchive
from portal.workloads.services.snapshots import environment_for


@dataclass(frozen=True)
class ArchiveBytes:
    """The bytes of an archive: `size_bytes` bytes from `start` of a file of the project."""

    digest: str
    file_name: str
    file: StoredFile
    start: int
    size_bytes: int


def add_archives(*, project: Project, archives: Iterable[ArchiveBytes]) -> None:
    """Record archives of the project. Idempotent: the same bytes are one archive."""
    for archive in archives:
        PackageArchive.objects.get_or_create(
            project=project,
            digest=archive.digest,
            defaults={
                "file_name": archive.file_name,
                "file": archive.file,
                "start": archive.start,
                "size_bytes": archive.size_bytes,
            },
        )


def check_archives(*, project: Project, requirements: str, submitted: Collection[str] = ()) -> None:
    """Raise InvalidInput for canonical requirements that name an archive the project lacks.

    `submitted` are the digests of those that come with the request.
    """
    names = archives_named_by(requirements)
    missing = names.keys() - set(submitted)
    if missing:
        archives = PackageArchive.objects.filter(project=project, digest__in=missing)
        missing -= set(archives.values_list("digest", flat=True))
    for digest in sorted(missing):
        raise InvalidInput(
            f"The requirements name the archive {names[digest]} with the sha256 {digest[:12]}…, "
            "which no job of this project has submitted.",
            code="unknown_archive",
            field="requirements",
            next_step="Put the file into the folder of the code and name it by its path, such as "
            f"./wheels/{names[digest]}.",
        )


def archive_for(
    *, node: Node, environment: str, digest: str, project_id: str
) -> tuple[Iterator[bytes], int]:
    """Return the bytes of an archive and their number, for a node that builds it into a package.

    Raises NotFound unless the node has a task of the project in that environment, or a request to
    build it, and the environment names the archive.
    """
    if not project_id:
        raise NotFound
    needed, _ = environment_for(node=node, digest=environment, project_id=project_id)
    if digest not in archives_named_by(needed.requirements):
        raise NotFound
    archives = PackageArchive.objects.filter(project=project_id, digest=digest)
    archive = archives.select_related("file__blob").first()
    if archive is None:
        raise NotFound
    pieces = open_file(file=archive.file, start=archive.start, length=archive.size_bytes)
    return pieces, archive.size_bytes
