"""The artifacts of a run: listed, and read in ranges."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from portal.core.errors import NotFound
from portal.core.text import whole_characters
from portal.experiments.artifact_paths import artifact_path_of, checked_path
from portal.experiments.factories import artifact_store
from portal.experiments.ports import Artifact, RunDetail


def artifacts_of(
    *, project_id: str, run: RunDetail, path: str = "", most: int | None = None
) -> Sequence[Artifact]:
    """Return the content of a folder of a run's artifacts, folders first. "" is the top.

    With `most`, any so many entries of a folder that has more.

    Left out is what no address can name: a file on a disk whose name is not UTF-8.
    """
    place = artifact_path_of(project_id, run.artifact_uri)
    if place is None:
        return []
    inside = checked_path(path)
    folder, store = f"{place}/{inside}".rstrip("/"), artifact_store()
    artifacts = store.listed(folder) if most is None else store.first_listed(folder, most=most)
    named = [it for it in artifacts if it.path == whole_characters(it.path)]
    return [replace(it, path=f"{inside}/{it.path}".lstrip("/")) for it in named]


def artifact_of(*, project_id: str, run: RunDetail, path: str) -> Artifact:
    """Return one file of a run's artifacts. Raises NotFound."""
    inside = checked_path(path)
    size_bytes = (
        artifact_store().size_of(_artifact_path(project_id, run, inside)) if inside else None
    )
    if size_bytes is None:
        raise NotFound
    return Artifact(inside, is_folder=False, size_bytes=size_bytes)


def read_artifact(
    *, project_id: str, run: RunDetail, artifact: Artifact, start: int = 0, length: int
) -> Iterator[bytes]:
    """Yield bytes of a file that `artifact_of` has returned."""
    place = _artifact_path(project_id, run, artifact.path)
    return artifact_store().read(place, start=start, length=length)


def _artifact_path(project_id: str, run: RunDetail, inside: str) -> str:
    place = artifact_path_of(project_id, run.artifact_uri)
    if place is None:
        raise NotFound
    return f"{place}/{inside}"
