"""Compact index of the files in a snapshot: tests for a name among fifty thousand.

The marks of a snapshot are the first eight bytes of the SHA-256 of each name, sorted. That is exact
as far as chance goes, and a name is found without opening the archive again.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

from portal.core.errors import InvalidInput, SlipwayError, TooLarge
from portal.storage.archives.limits import GIB, ArchiveLimits
from portal.storage.archives.names import PathIndex, parts_of
from portal.storage.archives.tar import read_tar

MAX_FILES = 50_000
LIMITS = ArchiveLimits(members=100_000, total_bytes=2 * GIB, member_bytes=GIB)
_MARK_BYTES = 8


class ArchiveSource:
    """A file to read an archive from, over pieces of bytes. `position` counts the bytes read."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = memoryview(b"")
        self.position = 0

    def read(self, size: int = -1, /) -> bytes:
        """Return up to `size` bytes, none at the end."""
        if not self._rest:
            self._rest = memoryview(next(self._pieces, b""))
        taken = self._rest[: size if size >= 0 else None]
        self._rest = self._rest[len(taken) :]
        self.position += len(taken)
        return bytes(taken)


def names_in(pieces: Iterator[bytes]) -> list[str]:
    """Return the files of a snapshot in constant memory, refusing whatever does not belong in one.

    Raises InvalidInput for links, devices, absolute paths, `..`, the same file twice, and for what
    is no tar, TooLarge for too many files. Nothing is written. The node that unpacks checks again.
    """
    names: list[str] = []
    places = PathIndex(LIMITS)
    try:
        for member in read_tar(ArchiveSource(pieces), LIMITS, is_gzip=False):  # type: ignore[arg-type]
            for _ in member.pieces:
                pass
            parts = parts_of(member.name, LIMITS)
            if not parts:
                continue
            places.reserve(member.name, parts, is_folder=member.is_folder)
            if not member.is_folder:
                names.append("/".join(parts))
    except SlipwayError as error:
        raise _refused(error) from error
    if len(names) > MAX_FILES:
        raise TooLarge(
            f"The snapshot has {len(names)} files; at most {MAX_FILES} are allowed.",
            code="snapshot_too_large",
            field="snapshot",
            next_step="Leave data out of it (list it in a .slipwayignore file).",
        )
    if not names:
        raise InvalidInput(
            "The snapshot has no files.",
            code="bad_snapshot",
            field="snapshot",
            next_step="Send a folder with at least the script in it.",
        )
    return names


def _refused(error: SlipwayError) -> SlipwayError:
    kind = TooLarge if isinstance(error, TooLarge) else InvalidInput
    return kind(
        error.message.replace("The archive", "The snapshot", 1),
        code="bad_snapshot",
        field="snapshot",
        next_step="Create the snapshot with `slipway train`, which packs the folder correctly.",
    )


def marks_of(names: Iterable[str]) -> bytes:
    """Return the marks of names."""
    return b"".join(sorted(map(_mark, names)))


def contains_name(name: str, marks: bytes) -> bool:
    """Return True if a name is among those that the marks were made of."""
    table = _Marks(marks)
    mark = _mark(name)
    place = bisect_left(table, mark)
    return place < len(table) and table[place] == mark


def _mark(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()[:_MARK_BYTES]


class _Marks(Sequence[bytes]):
    """Marks as a sequence, without cutting them apart."""

    def __init__(self, marks: bytes) -> None:
        self._marks = marks

    def __len__(self) -> int:
        return len(self._marks) // _MARK_BYTES

    def __getitem__(self, place: int) -> bytes:  # type: ignore[override]
        return self._marks[place * _MARK_BYTES : (place + 1) * _MARK_BYTES]
