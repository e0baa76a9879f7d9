"""The bytes of files in versions: put together from their pieces, each proved on the way."""

import tarfile
from collections.abc import Iterable, Iterator, Sequence

from portal.core.errors import NotFound
from portal.datasets.models import Entry, Version
from portal.storage.digests import verified
from portal.storage.errors import FileDamaged
from portal.storage.services import open_file
from slipway.schemas.datasets import PIECE_BYTES, DataFileOut

_PAGE = 500
_TAR_END = b"\0" * 1024
_BLOCK = 512


def entries_by_file(version: Version, *, after: str = "") -> Iterator[list[Entry]]:
    """Yield the entries of each file in turn, in the order of their keys after `after`.

    Reads a page at a time, so that a hundred thousand files take no more memory than a few.
    """
    key, index = after, _NO_INDEX
    file: list[Entry] = []
    while page := _page(version, key, index):
        for entry in page:
            if file and file[0].key != entry.key:
                yield file
                file = []
            file.append(entry)
        key, index = page[-1].key, page[-1].index
    if file:
        yield file


_NO_INDEX = 2**31 - 1


def _page(version: Version, key: str, index: int) -> Sequence[Entry]:
    entries = version.entries.select_related("piece__file__blob").order_by("key", "index")
    rest = list(entries.filter(key=key, index__gt=index)[:_PAGE]) if index != _NO_INDEX else []
    return rest or list(entries.filter(key__gt=key)[:_PAGE])


def entries_of(version: Version, path: str) -> list[Entry]:
    """Return the entries of the file at a path. Raises NotFound."""
    entries_queryset = version.entries.select_related("piece__file__blob").filter(path=path)
    entries = list(entries_queryset.order_by("index"))
    if not entries:
        raise NotFound("There is no such file in this version.")
    return entries


def content_of(file: Sequence[Entry], *, offset: int = 0) -> Iterator[bytes]:
    """Yield the bytes of a file from `offset` on. Raises FileDamaged where they have changed."""
    for entry in file:
        begins = entry.index * PIECE_BYTES
        piece = entry.piece
        if piece is None or begins + piece.size_bytes <= offset:
            continue
        if piece.file is None:
            raise FileDamaged("A chunk of this file has not been uploaded.")
        skipped = max(0, offset - begins)
        chunks = open_file(file=piece.file, start=piece.offset, length=piece.size_bytes)
        for chunk in verified(chunks, sha256=piece.sha256, size_bytes=piece.size_bytes):
            if skipped < len(chunk):
                yield chunk[skipped:]
            skipped = max(0, skipped - len(chunk))


def described(file: Sequence[Entry]) -> DataFileOut:
    """Describe a file with its pieces."""
    first = file[0]
    return DataFileOut(
        path=first.path,
        size_bytes=first.size_bytes,
        digest=first.digest,
        pieces=[entry.piece.sha256 for entry in file if entry.piece is not None],
    )


def manifest(version: Version) -> Iterator[bytes]:
    """Yield a line of JSON for each file, in the order of their keys."""
    for file in entries_by_file(version):
        yield described(file).model_dump_json().encode() + b"\n"


def archive(
    version: Version, *, after: str = "", below_bytes: int | None = None
) -> Iterator[bytes]:
    """Yield a tar of the files, by key, without files of `below_bytes` or more."""
    for file in entries_by_file(version, after=after):
        size = file[0].size_bytes
        if below_bytes is not None and size >= below_bytes:
            continue
        member = tarfile.TarInfo(file[0].path)
        member.size, member.mode = size, 0o644
        yield member.tobuf(tarfile.PAX_FORMAT)
        yield from content_of(file)
        yield b"\0" * (-size % _BLOCK)
    yield _TAR_END


def join_chunks(chunks: Iterable[bytes], *, at_least: int = 256 * 1024) -> Iterator[bytes]:
    """Join small chunks, so that a hundred thousand small files are not as many turns."""
    held: list[bytes] = []
    size = 0
    for chunk in chunks:
        held.append(chunk)
        size += len(chunk)
        if size >= at_least:
            yield b"".join(held)
            held, size = [], 0
    if held:
        yield b"".join(held)
