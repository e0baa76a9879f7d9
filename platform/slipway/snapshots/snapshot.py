"""Taking a snapshot: list, check, pack, count."""

import hashlib
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from slipway.errors import InvalidInput
from slipway.sanitize import visible
from slipway.schemas.notebook import SUFFIX, script_name
from slipway.schemas.training import GitFacts
from slipway.snapshots.folder import ExcludedFile, SnapshotContents, contents_of
from slipway.snapshots.git import GitFailed, git_facts
from slipway.snapshots.limits import DEFAULT_LIMIT_BYTES, check_names, check_size
from slipway.snapshots.notebook import script_of
from slipway.snapshots.secrecy import looks_secret
from slipway.snapshots.tar import PIECE_BYTES, Member, pack

_KEPT_IN_MEMORY_BYTES = 8 * 1024**2


@dataclass(frozen=True)
class Snapshot:
    """Code as it was: an archive, its SHA-256 digest, and what git said of it.

    The archive is in a temporary file until `close`. Use it as a context manager. `left_out`
    are files a person may miss, `note` a sentence they should read, "" where there is none.
    """

    digest: str
    size_bytes: int
    files: int
    git: GitFacts | None
    left_out: tuple[ExcludedFile, ...]
    note: str
    folder: Path
    paths: frozenset[str]
    _archive: IO[bytes]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove the temporary file."""
        self._archive.close()

    def pieces(self) -> Iterator[bytes]:
        """Yield the archive from its beginning. One reader at a time."""
        self._archive.seek(0)
        while piece := self._archive.read(PIECE_BYTES):
            yield piece

    def script(self, name: str | Path) -> str:
        """Return the path, within the snapshot, of what runs for `name`.

        `name` is a path from the folder, or an absolute one in it. Of a notebook it is the script
        made of it. Raises InvalidInput when there is no such script.
        """
        path = _inside(self.folder, name)
        if path is not None and path.endswith(SUFFIX) and script_name(path) in self.paths:
            return script_name(path)
        if path in self.paths:
            return path
        raise InvalidInput(
            f"There is no script {visible(str(name))} {self._missing_script_reason(name, path)}.",
            code="no_such_script",
            field="script",
            next_step="Name a file by its path from the folder of your code.",
        )

    def path_of(self, name: str | Path) -> str | None:
        """Return the path of a file within the snapshot, or None if it is not in it."""
        path = _inside(self.folder, name)
        return path if path in self.paths else None

    def _missing_script_reason(self, name: str | Path, path: str | None) -> str:
        if path is None:
            return f"in the folder {visible(str(self.folder))}, which is what travels"
        if any(item.path == path for item in self.left_out):
            return f"in the snapshot: {next(i.reason for i in self.left_out if i.path == path)}"
        if (self.folder / name).is_file():
            return "in the snapshot: it is ignored (.gitignore, .slipwayignore)"
        return f"in {visible(str(self.folder))}"


def take_snapshot(
    folder: str | Path = ".",
    *,
    script: str | Path | None = None,
    include: Sequence[str] = (),
    added: Mapping[str, bytes] | None = None,
    limit_bytes: int = DEFAULT_LIMIT_BYTES,
) -> Snapshot:
    """Return the code of `folder` as it is now.

    `script` is what will run: it must be there, and a notebook gets a script made of its cells.
    `include` names files that travel although they are ignored or look like secrets. `added` are
    files that are not in the folder, by their path, or that replace one there. Raises TooLarge
    above `limit_bytes` (at most 2 GB) and InvalidInput for what cannot travel.
    """
    root = Path(folder).expanduser().resolve()
    if not root.is_dir():
        raise InvalidInput(
            f"There is no folder {visible(str(folder))}.",
            code="no_such_folder",
            field="folder",
            next_step="Name the folder of your code, or leave it out for the one you are in.",
        )
    contents = contents_of(root, include=include)
    given = dict(added or {})
    made = {**given, **_script_of_notebook(root, script, contents)}
    check_names([*contents.sources, *made])
    sizes = {path: len(content) for path, content in given.items()}
    check_size({**contents.sizes, **sizes}, limit_bytes=limit_bytes)
    members: dict[str, Path | bytes] = {**contents.sources, **made}
    digest, size_bytes, archive = _packed([Member(*item) for item in members.items()])
    snapshot = Snapshot(
        digest=digest,
        size_bytes=size_bytes,
        files=len(members),
        git=_git_facts(root, contents),
        left_out=tuple(contents.left_out),
        note=contents.note,
        folder=root,
        paths=frozenset(members),
        _archive=archive,
    )
    if script is not None:
        try:
            snapshot.script(script)
        except InvalidInput:
            snapshot.close()
            raise
    return snapshot


def _packed(members: list[Member]) -> tuple[str, int, IO[bytes]]:
    """Pack into a temporary file, so that what is sent is what was counted, whatever changes."""
    archive = tempfile.SpooledTemporaryFile(  # noqa: SIM115  (the snapshot closes it)
        max_size=_KEPT_IN_MEMORY_BYTES, prefix="slipway-snapshot-"
    )
    sha256, size_bytes = hashlib.sha256(), 0
    try:
        for piece in pack(members):
            sha256.update(piece)
            archive.write(piece)
            size_bytes += len(piece)
    except OSError as error:
        archive.close()
        raise InvalidInput(
            f"The snapshot cannot be written to {tempfile.gettempdir()}: {error.strerror}.",
            code="no_space",
            next_step="Free space there, or set TMPDIR to a folder with more.",
        ) from None
    except BaseException:
        archive.close()
        raise
    return sha256.hexdigest(), size_bytes, archive


def _git_facts(root: Path, contents: SnapshotContents) -> GitFacts | None:
    if not contents.in_git:
        return None

    def is_private(path: str) -> bool:
        if path in contents.sources:
            return False
        # The diff may show deleted files, but not files that exist and are left out.
        return looks_secret(path) or os.path.lexists(root / path)

    try:
        return git_facts(root, new_files=contents.new_files, is_private=is_private)
    except GitFailed:
        return None


def _script_of_notebook(
    root: Path, script: str | Path | None, contents: SnapshotContents
) -> dict[str, bytes]:
    path = _inside(root, script) if script is not None else None
    if path is None or not path.endswith(SUFFIX) or path not in contents.sources:
        return {}
    return {script_name(path): script_of(contents.sources[path].read_bytes(), name=path)}


def _inside(root: Path, name: str | Path) -> str | None:
    """Return `name`, a path from `root` or from where one is, as one from `root`.

    None when it leads out of it.
    """
    relative = _relative(root, root / name)
    if relative is None or not (root / relative).is_file():
        here = Path.cwd() / name
        relative = (_relative(root, here) if here.is_file() else None) or relative
    return relative


def _relative(root: Path, path: Path) -> str | None:
    whole = Path(os.path.normpath(path))
    if not whole.is_relative_to(root):
        # It may still be inside, through a link above the folder.
        whole = whole.parent.resolve() / whole.name
    return whole.relative_to(root).as_posix() if whole.is_relative_to(root) else None
