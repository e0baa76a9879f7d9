"""Files of this machine on their way into a dataset: found, measured in pieces, sent in bundles."""

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from slipway.errors import InvalidInput
from slipway.sanitize import visible
from slipway.schemas.datasets import (
    BUNDLE_BYTES,
    FILES_AT_ONCE,
    PIECE_BYTES,
    DataFileIn,
    checked_path,
)

_IGNORED = frozenset({".git", ".DS_Store", "__pycache__", ".ipynb_checkpoints"})
_READ_BYTES = 1024**2
_PIECES_AT_ONCE = 2000
_MOST_IN_A_BUNDLE = 5000


@dataclass(frozen=True)
class LocalFile:
    """A file here, and what its path in the dataset is."""

    source: Path
    path: str


def files_under(sources: Sequence[str | Path]) -> Iterator[LocalFile]:
    """Yield the files to send, in the order of their paths.

    A folder means its content, a file itself. Folders behind symbolic links, `.git` and
    the like are left out. Raises InvalidInput for what cannot be read or named.
    """
    taken: set[str] = set()
    for given in sources:
        source = Path(given).expanduser()
        items = _in_folder(source) if source.is_dir() else iter([(source, source.name)])
        for at, path in items:
            if not at.is_file():
                raise _unreadable(at, "it is no file")
            try:
                checked_path(path)
            except ValueError as error:
                raise _unreadable(at, f"its name {error}") from None
            if path in taken:
                raise _unreadable(at, "another file has the same path in the dataset")
            taken.add(path)
            yield LocalFile(at, path)


def _in_folder(folder: Path) -> Iterator[tuple[Path, str]]:
    for at, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in _IGNORED)
        for name in sorted(names):
            if name not in _IGNORED:
                path = Path(at, name)
                yield path, path.relative_to(folder).as_posix()


def measured(file: LocalFile) -> DataFileIn:
    """Read a file and return its description for the server, or raise InvalidInput."""
    pieces = []
    size_bytes = 0
    try:
        with file.source.open("rb") as source:
            while True:
                measure, length = hashlib.sha256(), 0
                while length < PIECE_BYTES:
                    some = source.read(min(_READ_BYTES, PIECE_BYTES - length))
                    if not some:
                        break
                    measure.update(some)
                    length += len(some)
                if not length:
                    break
                pieces.append(measure.hexdigest())
                size_bytes += length
    except OSError as error:
        raise _unreadable(file.source, str(error.strerror)) from None
    return DataFileIn(path=file.path, size_bytes=size_bytes, pieces=pieces)


def batches(files: Iterator[LocalFile]) -> Iterator[list[tuple[LocalFile, DataFileIn]]]:
    """Yield measured files in lots that one request can name."""
    batch: list[tuple[LocalFile, DataFileIn]] = []
    pieces = 0
    for file in files:
        value = measured(file)
        if batch and (len(batch) >= FILES_AT_ONCE or pieces + len(value.pieces) > _PIECES_AT_ONCE):
            yield batch
            batch, pieces = [], 0
        batch.append((file, value))
        pieces += len(value.pieces)
    if batch:
        yield batch


class Bundle:
    """Several pieces as frames in one body for `Connection.upload`."""

    def __init__(self) -> None:
        self._frames: list[bytes] = []
        self.content_bytes = 0

    def __len__(self) -> int:
        return len(self._frames)

    @property
    def digest(self) -> str:
        """SHA-256 of the whole body."""
        measure = hashlib.sha256()
        for frame in self._frames:
            measure.update(frame)
        return measure.hexdigest()

    @property
    def size_bytes(self) -> int:
        """Size of the body."""
        return sum(map(len, self._frames))

    def pieces(self) -> Iterator[bytes]:
        """Yield the body from its beginning."""
        return iter(self._frames)

    def add(self, content: bytes) -> None:
        """Add a piece."""
        head = hashlib.sha256(content).digest() + len(content).to_bytes(8)
        self._frames.append(head + content)
        self.content_bytes += len(content)

    def clear(self) -> None:
        """Forget the pieces: a request that has been sent holds on to its body for some time."""
        self._frames.clear()

    def can_add(self, size_bytes: int) -> bool:
        """Return whether a piece of that size fits in."""
        fits = self.content_bytes + size_bytes <= BUNDLE_BYTES
        return fits and len(self._frames) < _MOST_IN_A_BUNDLE


def bundles(
    batch: Sequence[tuple[LocalFile, DataFileIn]], missing: Sequence[str]
) -> Iterator[Bundle]:
    """Yield the missing pieces of a batch, read again from the files, a bundle at a time."""
    requested = set(missing)
    bundle = Bundle()
    for file, value in batch:
        for index, sha256 in enumerate(value.pieces):
            if sha256 not in requested:
                continue
            requested.discard(sha256)
            content = _piece(file, index)
            if not bundle.can_add(len(content)):
                yield bundle
                bundle = Bundle()
            bundle.add(content)
    if len(bundle):
        yield bundle


def _piece(file: LocalFile, index: int) -> bytes:
    try:
        with file.source.open("rb") as source:
            source.seek(index * PIECE_BYTES)
            return source.read(PIECE_BYTES)
    except OSError as error:
        raise _unreadable(file.source, str(error.strerror)) from None


def _unreadable(path: Path, why: str) -> InvalidInput:
    return InvalidInput(
        f"{visible(str(path))} cannot be sent: {why}.",
        code="unreadable_file",
        field="files",
        next_step="Leave it out or rename it.",
    )
