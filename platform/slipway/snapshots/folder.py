"""Content of a folder's snapshot: files, their sources, and omissions with their reasons."""

import os
import stat
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from slipway.errors import InvalidInput
from slipway.sanitize import visible
from slipway.snapshots.git import GitFailed, GitFileListing, list_files
from slipway.snapshots.limits import MAX_FILES, leads_out, too_many
from slipway.snapshots.patterns import Pattern, exclude_matching, is_ignored, read_patterns
from slipway.snapshots.secrecy import looks_secret

OWN_IGNORE_FILE = ".slipwayignore"
_GIT_IGNORE_FILE = ".gitignore"
_ENVIRONMENT_MARK = "pyvenv.cfg"
# Files that are never code. Applies outside version control only.
_USUAL_SUSPECTS = read_patterns("""
.git
.hg/
.svn/
__pycache__/
*.py[cod]
.venv/
venv/
node_modules/
.ipynb_checkpoints/
.mypy_cache/
.pytest_cache/
.ruff_cache/
.hypothesis/
.cache/
.tox/
.nox/
*.egg-info/
.idea/
.vscode/
.DS_Store
Thumbs.db
*.swp
.coverage
wandb/
mlruns/
lightning_logs/
""")


@dataclass(frozen=True)
class ExcludedFile:
    """A file that does not travel though nobody asked to ignore it, and why."""

    path: str
    reason: str


@dataclass
class SnapshotContents:
    """The files of a snapshot: the path of each on this machine, and its size in bytes.

    `new_files` are those git does not know yet. `in_git` is whether git was asked at all, and
    `note` why not where that is a surprise.
    """

    sources: dict[str, Path] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    left_out: list[ExcludedFile] = field(default_factory=list)
    new_files: list[str] = field(default_factory=list)
    in_git: bool = False
    note: str = ""


def contents_of(folder: Path, *, include: Sequence[str] = ()) -> SnapshotContents:
    """Return what of `folder` travels.

    `include` names files and folders in it that travel although they are ignored or look secret.
    Raises InvalidInput for links that lead out, TooLarge for more files than code has.
    """
    snapshot_contents = SnapshotContents()
    listed = _list_paths(folder, snapshot_contents)
    forced = dict.fromkeys(path for name in include for path in _forced(folder, name))
    paths = dict.fromkeys([*listed, *forced])
    secret = [path for path in paths if path not in forced and looks_secret(path)]
    for path in secret:
        snapshot_contents.left_out.append(ExcludedFile(path, "looks like a secret"))
        del paths[path]
    _inspect_files(folder, paths, snapshot_contents)
    snapshot_contents.new_files = [
        path for path in snapshot_contents.new_files if path in snapshot_contents.sources
    ]
    snapshot_contents.left_out.sort(key=lambda item: item.path)
    return snapshot_contents


def _list_paths(folder: Path, snapshot_contents: SnapshotContents) -> list[str]:
    try:
        listing = list_files(folder)
    except GitFailed as failure:
        # Add a note if there is a repository that git refuses to read.
        if any((above / ".git").exists() for above in (folder, *folder.parents)):
            snapshot_contents.note = f"The repository was not asked ({visible(str(failure))})."
        listing = GitFileListing()
    if listing.tracked or listing.others:
        snapshot_contents.in_git = True
        return _from_git(folder, listing, snapshot_contents)
    return list(_walked(folder))


def _from_git(
    folder: Path, listing: GitFileListing, snapshot_contents: SnapshotContents
) -> list[str]:
    ending = f"/{_ENVIRONMENT_MARK}"
    environments = [f"{path[: -len(ending)]}/" for path in listing.others if path.endswith(ending)]
    others = [path for path in listing.others if not path.startswith(tuple(environments))]
    own = [
        pattern
        for path in sorted([*listing.tracked, *others], key=lambda path: path.count("/"))
        if path.rpartition("/")[2] == OWN_IGNORE_FILE
        for pattern in _patterns_in(folder, path)
    ]
    snapshot_contents.new_files = exclude_matching(others, [*_USUAL_SUSPECTS, *own])
    kept = [*exclude_matching(listing.tracked, own), *snapshot_contents.new_files]
    if len(kept) > MAX_FILES:
        raise too_many(Counter(path.rpartition("/")[0] for path in kept))
    return kept


def _walked(folder: Path) -> Iterator[str]:
    """Yield the files of a folder without git, its ignore files heeded."""
    folders: Counter[str] = Counter()
    count = 0
    waiting: list[tuple[str, list[Pattern]]] = [("", _USUAL_SUSPECTS)]
    while waiting:
        prefix, patterns = waiting.pop()
        try:
            with os.scandir(folder / prefix) as scan:
                entries = {entry.name: entry for entry in scan}
        except OSError as error:
            raise InvalidInput(
                f"The folder {visible(prefix or str(folder))} cannot be read: {error.strerror}.",
                code="unreadable_folder",
                field="folder",
                next_step=f"Give yourself the right to read it, or name it in {OWN_IGNORE_FILE}.",
            ) from None
        if prefix and _ENVIRONMENT_MARK in entries:
            continue
        for name in (_GIT_IGNORE_FILE, OWN_IGNORE_FILE):
            if name in entries:
                patterns = [*patterns, *_patterns_in(folder, prefix + name)]
        for name, entry in entries.items():
            path = prefix + name
            is_folder = entry.is_dir(follow_symlinks=False)
            if is_ignored(patterns, path, is_folder=is_folder):
                continue
            if is_folder:
                waiting.append((f"{path}/", patterns))
                continue
            folders[prefix.removesuffix("/")] += 1
            count += 1
            if count > MAX_FILES:
                raise too_many(folders)
            yield path


def _patterns_in(folder: Path, path: str) -> list[Pattern]:
    try:
        text = (folder / path).read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return []
    return read_patterns(text, base=path.rpartition("/")[0] + "/" if "/" in path else "")


def _forced(folder: Path, name: str) -> list[str]:
    """Return the files that `name` means: itself, or all there are in that folder."""
    whole = folder / name
    path = Path(os.path.normpath(whole))
    if not path.is_relative_to(folder) or not whole.exists():
        raise InvalidInput(
            f"{visible(name)} is not in the folder {visible(str(folder))}.",
            code="no_such_file",
            field="include",
            next_step="Name a file or folder by its path from there.",
        )
    if not path.is_dir() or path.is_symlink():
        return [path.relative_to(folder).as_posix()]
    return [
        Path(above, file).relative_to(folder).as_posix()
        for above, _, files in os.walk(path)
        for file in files
        if ".git" not in Path(above).relative_to(folder).parts
    ]


def _inspect_files(folder: Path, paths: Iterable[str], snapshot_contents: SnapshotContents) -> None:
    """Note size and place of every file, and follow links that stay inside."""
    links: list[str] = []
    for path in paths:
        try:
            status = (folder / path).lstat()
        except (FileNotFoundError, NotADirectoryError):
            continue  # deleted, but still in git's index
        if stat.S_ISLNK(status.st_mode):
            links.append(path)
        elif stat.S_ISREG(status.st_mode):
            snapshot_contents.sources[path] = folder / path
            snapshot_contents.sizes[path] = status.st_size
        else:
            snapshot_contents.left_out.append(ExcludedFile(path, "is no ordinary file"))
    plain = sorted(snapshot_contents.sources)
    outside = [
        (path, str((folder / path).readlink()))
        for path in links
        if not _follow(folder, path, plain, snapshot_contents)
    ]
    if outside:
        raise leads_out(outside)


def _follow(folder: Path, link: str, plain: list[str], snapshot_contents: SnapshotContents) -> bool:
    """Take what a link leads to, at the link's own place. False when that is outside."""
    try:
        target = (folder / link).resolve()
    except (OSError, RuntimeError):  # links in a circle
        snapshot_contents.left_out.append(ExcludedFile(link, "links to nothing"))
        return True
    if not target.is_relative_to(folder):
        return False
    inner = target.relative_to(folder).as_posix()
    if not target.exists():
        snapshot_contents.left_out.append(ExcludedFile(link, "links to nothing"))
    elif not target.is_dir():
        if inner in snapshot_contents.sizes:
            _copy_entry(link, inner, snapshot_contents)
        else:
            snapshot_contents.left_out.append(
                ExcludedFile(link, f"links to {inner}, which is left out")
            )
    elif inner == "." or f"{link}/".startswith(f"{inner}/"):
        snapshot_contents.left_out.append(ExcludedFile(link, "links to a folder it lies in"))
    else:
        start = bisect_left(plain, f"{inner}/")
        for path in plain[start:]:
            if not path.startswith(f"{inner}/"):
                break
            _copy_entry(link + path[len(inner) :], path, snapshot_contents)
    return True


def _copy_entry(place: str, path: str, snapshot_contents: SnapshotContents) -> None:
    snapshot_contents.sources[place] = snapshot_contents.sources[path]
    snapshot_contents.sizes[place] = snapshot_contents.sizes[path]
    if len(snapshot_contents.sizes) > MAX_FILES:
        raise too_many(Counter(name.rpartition("/")[0] for name in snapshot_contents.sizes))
