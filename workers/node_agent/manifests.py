"""Content manifest of an environment, recorded at its build and verified before use.

The record is outside the environment, where no build and no task can write.
"""

import hashlib
import json
import os
import stat
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from workers.launcher.atomic_files import write_atomically

# Hashing releases the interpreter's lock.
_THREADS: Final = 2
_CHUNK_FILES: Final = 64
Bytecode = Literal["listed", "removed", "accepted"]


class ContentChanged(Exception):
    """An environment differs from its record. `path` is the first difference."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path} {why}")
        self.path = path


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """One file, folder or link. `content` is a SHA-256, or the target of a link."""

    mode: int
    size: int
    ctime_ns: int
    inode: int
    content: str = ""

    def has_same_status(self, other: "ManifestEntry") -> bool:
        """Return whether the file is untouched: every write changes the ctime."""
        if stat.S_ISDIR(self.mode):
            return self.mode == other.mode
        return replace(self, content="") == replace(other, content="")


@dataclass(frozen=True)
class Manifest:
    """All entries of an environment by their path inside it."""

    entries: dict[str, ManifestEntry]

    def digest(self) -> str:
        """One digest over everything that must not change."""
        total = hashlib.sha256()
        for path, entry in sorted(self.entries.items()):
            size = 0 if stat.S_ISDIR(entry.mode) else entry.size
            _feed(total, path, entry.mode, size, entry.content)
        return total.hexdigest()

    def fingerprint(self) -> str:
        """A digest of the status of all entries, which is cheap to compare."""
        return _fingerprint(self.entries.items())

    def size_bytes(self) -> int:
        """The size of all files."""
        return sum(entry.size for entry in self.entries.values() if stat.S_ISREG(entry.mode))

    def write(self, path: Path) -> None:
        """Write it, whole or not at all."""
        lines = (
            json.dumps([name, entry.mode, entry.size, entry.ctime_ns, entry.inode, entry.content])
            for name, entry in self.entries.items()
        )
        write_atomically(path, "\n".join(lines))

    @classmethod
    def read(cls, path: Path) -> "Manifest":
        """The inverse of `write`. Raises OSError and ValueError."""
        rows = (json.loads(line) for line in path.read_text("utf-8").splitlines())
        return cls({row[0]: ManifestEntry(*row[1:]) for row in rows})


def walk(root: Path) -> Iterator[tuple[str, ManifestEntry]]:
    """Everything below a folder, in a fixed order, without contents. Follows no link."""
    todo = [""]
    while todo:
        folder = todo.pop()
        with os.scandir(os.path.join(root, folder)) as listed:  # noqa: PTH118 - many thousands
            children = sorted(listed, key=lambda child: child.name)
        for child in children:
            status = child.stat(follow_symlinks=False)
            path = f"{folder}/{child.name}" if folder else child.name
            if stat.S_ISDIR(status.st_mode):
                todo.append(path)
            yield (
                path,
                ManifestEntry(status.st_mode, status.st_size, status.st_ctime_ns, status.st_ino),
            )


def record(root: Path, fingerprint: str) -> Manifest:
    """Read and hash everything below a folder but bytecode.

    Raises ContentChanged unless the status is that of `fingerprint`, before and after.
    """
    entries = dict(_without_bytecode(walk(root)))
    if _fingerprint(entries.items()) == fingerprint:
        manifest = Manifest(_with_contents(root, entries))
        if fingerprint_of(root, bytecode=False) == fingerprint:
            return manifest
    raise ContentChanged("one of its files", "was touched before its content was recorded")


def fingerprint_of(root: Path, *, bytecode: bool = True) -> str:
    """The fingerprint of a folder now: equal to its manifest's if nothing was touched."""
    return _fingerprint(walk(root) if bytecode else _without_bytecode(walk(root)))


def sealed_status(root: Path) -> tuple[str, int]:
    """Return the fingerprint of a folder without bytecode, and the size of its files in bytes."""
    entries = dict(_without_bytecode(walk(root)))
    return _fingerprint(entries.items()), Manifest(entries).size_bytes()


def compare(
    root: Path, manifest: Manifest, *, everything: bool, bytecode: Bytecode = "listed"
) -> Manifest:
    """Compare a folder with its manifest and return a manifest with the current status.

    Hashes files whose status has changed, or `everything`. Raises ContentChanged. While bytecode is
    still being compiled, unlisted bytecode files are `removed`, or `accepted` after that.
    """
    listed, now = manifest.entries, dict(walk(root))
    spared = bytecode != "listed"
    for path in listed.keys() - now.keys():
        if not (spared and _is_bytecode(path)):
            raise ContentChanged(path, "is missing")
    for path in sorted(now.keys() - listed.keys()):
        if not (spared and _is_bytecode(path)):
            raise ContentChanged(path, "was added")
        if bytecode == "removed" and not stat.S_ISDIR(now[path].mode):
            (root / path).unlink()
            del now[path]
        elif not (stat.S_ISDIR(now[path].mode) or stat.S_ISREG(now[path].mode)):
            raise ContentChanged(path, "is not a file")
    same = {
        path: replace(entry, content=listed[path].content)
        for path, entry in now.items()
        if not everything and path in listed and entry.has_same_status(listed[path])
    }
    others = {path: entry for path, entry in now.items() if path not in same}
    hashed = _with_contents(root, others)
    for path in sorted(hashed.keys() & listed.keys()):
        is_rewritten = bytecode == "accepted" and _is_bytecode(path)
        if not is_rewritten and not _is_unchanged(hashed[path], listed[path]):
            raise ContentChanged(path, "was changed")
    both = same | hashed
    return Manifest({path: both[path] for path in now})


def _is_unchanged(entry: ManifestEntry, before: ManifestEntry) -> bool:
    is_folder = stat.S_ISDIR(entry.mode)
    return (
        entry.mode == before.mode
        and entry.content == before.content
        and (is_folder or entry.size == before.size)
    )


def _is_bytecode(path: str) -> bool:
    return "__pycache__" in path.split("/")


def _without_bytecode(
    entries: Iterable[tuple[str, ManifestEntry]],
) -> Iterator[tuple[str, ManifestEntry]]:
    return ((path, entry) for path, entry in entries if not _is_bytecode(path))


def _with_contents(root: Path, entries: dict[str, ManifestEntry]) -> dict[str, ManifestEntry]:
    def content(path: str) -> str:
        mode = entries[path].mode
        whole = os.path.join(root, path)  # noqa: PTH118 - many thousands of them
        if stat.S_ISLNK(mode):
            return os.readlink(whole)  # noqa: PTH115
        if not stat.S_ISREG(mode):
            return ""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            with os.fdopen(os.open(whole, flags), "rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise ContentChanged(path, f"cannot be read ({error.strerror})") from error

    with ThreadPoolExecutor(_THREADS) as pool:
        contents = pool.map(content, entries, chunksize=_CHUNK_FILES)
        return {
            path: replace(entry, content=text)
            for (path, entry), text in zip(entries.items(), contents, strict=True)
        }


def _fingerprint(entries: Iterable[tuple[str, ManifestEntry]]) -> str:
    total = hashlib.sha256()
    for path, entry in entries:
        # No path contains a NUL.
        line = f"{path}\0{entry.mode}"
        if not stat.S_ISDIR(entry.mode):
            line += f" {entry.size} {entry.ctime_ns} {entry.inode}"
        total.update(os.fsencode(f"{line}\0"))
    return total.hexdigest()


def _feed(total: "hashlib._Hash", *parts: str | int) -> None:
    total.update(json.dumps(parts).encode())
