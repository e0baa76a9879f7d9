"""Filling a draft: naming its files, taking in their pieces, closing it."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from django.db import transaction
from django.db.models import Max

from portal.accounts import audit
from portal.accounts.models import Project, User
from portal.core import clock
from portal.core.bulk_insert import insert_rows
from portal.core.enqueue import enqueue_on_commit
from portal.core.errors import Conflict, InvalidInput, NotFound, SlipwayError, TooLarge
from portal.core.streams import release_connection
from portal.datasets.errors import NotADraft
from portal.datasets.models import Dataset, Entry, Piece, Version
from portal.datasets.tasks import check_drafts
from portal.storage.ports import StoredBytes, UploadDeclaration
from portal.storage.services import add_file, discard_bytes, receive_bytes
from slipway.schemas.datasets import (
    BUNDLE_BYTES,
    MAX_FILE_BYTES,
    MAX_FILES,
    PIECE_BYTES,
    DataFileIn,
    VersionState,
    checked_path,
    digest_of,
    key_of,
    pieces_in,
)
from slipway.schemas.tables import ReadSettings
from slipway.schemas.truncation import shorten_name

_HEADER_BYTES = 40
_DIGEST_BYTES = 32
_MOST_IN_A_BUNDLE = 5_000
_FRAMES_BYTES = BUNDLE_BYTES + _HEADER_BYTES * _MOST_IN_A_BUNDLE
_MISSING_SHOWN = 5
_TOUCH_AGAIN = timedelta(minutes=10)
_LOOKED_UP_AT_ONCE = 500


def open_draft(*, dataset: Dataset, by: User, note: str = "") -> Version:
    """Create a draft version, which is hidden until it is ready."""
    draft = Version.objects.create(dataset=dataset, created_by=by, note=note)
    return Version.objects.complete().get(pk=draft.pk)


def declare_files(*, draft: Version, files: Sequence[DataFileIn]) -> list[str]:
    """Add files to a draft, replacing those of the same path. Returns the pieces to send.

    Raises InvalidInput for a file whose pieces do not add up or a path named twice, NotADraft.
    """
    by_key = {key_of(file.path): file for file in files}
    if len(by_key) != len(files):
        raise InvalidInput(
            "A path is listed twice.", field="files", next_step="List each path once."
        )
    sizes: dict[str, int] = {}
    for file in files:
        _check_pieces(file)
        for index, sha256 in enumerate(file.pieces):
            size = min(PIECE_BYTES, file.size_bytes - index * PIECE_BYTES)
            if sizes.setdefault(sha256, size) != size:
                raise _two_sizes(file.path)
    with transaction.atomic():
        _lock_draft(draft)
        pieces = _pieces_of(draft.dataset.project, sizes)
        draft.entries.filter(key__in=list(by_key)).delete()
        insert_rows(
            Entry,
            ("version_id", "path", "key", "index", "piece_id", "digest", "size_bytes"),
            (
                (draft.pk, file.path, key, index, piece, digest_of(file.pieces), file.size_bytes)
                for key, file in by_key.items()
                for index, piece in enumerate([pieces[sha].pk for sha in file.pieces] or [None])
            ),
        )
    return [sha for sha in sizes if pieces[sha].file_id is None]


def accept_pieces(*, project: Project, by: User, chunks: Iterable[bytes]) -> tuple[int, int]:
    """Accept frames of pieces that drafts miss. Returns the number stored, and their bytes.

    All of a body is stored or nothing. Pieces not missing are read and dropped. Raises InvalidInput
    for a broken frame or digest, TooLarge beyond 32 MiB.
    """
    frames = _Frames(chunks)
    stored = receive_bytes(chunks=frames.contents(), limit_bytes=BUNDLE_BYTES)
    try:
        kept = _fill(project, by, frames.arrived, stored)
    except BaseException:
        discard_bytes(stored)
        raise
    if not kept:
        discard_bytes(stored)
    return len(kept), sum(arrived_piece.size_bytes for arrived_piece in kept)


def append_piece(
    *, draft: Version, by: User, path: str, offset: int, size_bytes: int, chunks: Iterable[bytes]
) -> int:
    """Append the next piece to a file that arrives in order. Returns the bytes there are now.

    A file begins with offset 0, which replaces what had arrived of it unless it is the same file
    (as long). A piece that is there already is not read again. Raises Conflict when `offset` is
    not where the file goes on, InvalidInput for a bad path or length, NotADraft.
    """
    path = _clean_path(path)
    if not 0 <= size_bytes <= MAX_FILE_BYTES:
        raise TooLarge("A file can have at most 64 GiB.", field="size_bytes", next_step="Split it.")
    here = received(draft=draft, path=path, size_bytes=size_bytes)
    if offset not in (0, here) or offset % PIECE_BYTES:
        raise Conflict(
            f"{here} bytes of {path} have arrived, so it cannot continue at {offset}.",
            code="wrong_offset",
            field="offset",
            next_step=f"Continue at {here}.",
        )
    length = min(PIECE_BYTES, size_bytes - offset)
    release_connection()
    stored = receive_bytes(
        chunks=chunks, promised=UploadDeclaration(size_bytes=length), limit_bytes=PIECE_BYTES
    )
    try:
        with transaction.atomic():
            _lock_draft(draft)
            _append(draft, path, offset // PIECE_BYTES, size_bytes, stored.sha256)
    except BaseException:
        discard_bytes(stored)
        raise
    pieces = [_ArrivedPiece(stored.sha256, length, 0)] if length else []
    if not _fill(draft.dataset.project, by, pieces, stored):
        discard_bytes(stored)
    _finish(draft, path, size_bytes)
    return offset + length


def received(*, draft: Version, path: str, size_bytes: int) -> int:
    """Return how many bytes of a file of that size have arrived in a row."""
    entries = draft.entries.filter(key=key_of(path), size_bytes=size_bytes, piece__isnull=False)
    there = entries.filter(piece__file__isnull=False).count()
    return min(there * PIECE_BYTES, size_bytes)


def commit_draft(
    *, draft: Version, allow_bad_rows: bool = False, settings: ReadSettings | None = None
) -> Version:
    """Close a draft: from now on its files never change, and a worker checks them.

    `settings` declare how its tables are read. Without them those of an earlier try stay. Raises
    Conflict when it has no files or not all bytes have arrived, NotADraft when it was closed
    before. A draft that was refused for bad rows may be committed again to allow them.
    """
    with transaction.atomic():
        closed = Version.objects.move(
            draft.pk,
            VersionState.CHECKING,
            allow_bad_rows=allow_bad_rows,
            settings=draft.settings if settings is None else settings.model_dump(mode="json"),
            touched_at=clock.now(),
            checker_until=None,
            checks=0,
            reason="",
            problems=[],
        )
        if not closed:
            raise NotADraft
        _require_whole(draft)
        audit.record(
            "dataset.version_commit",
            kind="dataset_version",
            target=draft,
            label=draft.dataset.name,
            project=draft.dataset.project,
        )
        enqueue_on_commit(check_drafts)
    return Version.objects.complete().get(pk=draft.pk)


def _require_whole(draft: Version) -> None:
    files = draft.entries.files()
    count = files.count()
    if not 0 < count <= MAX_FILES:
        raise Conflict(
            f"The draft has {count} files; a version has 1 to {MAX_FILES:,}.",
            code="no_files" if not count else "too_many_files",
            next_step="Add at least one file." if not count else "Combine small files.",
        )
    missing = files.filter(digest="") | draft.entries.filter(piece__file__isnull=True).exclude(
        piece=None
    )
    paths = missing.order_by("path").values_list("path", flat=True).distinct()
    names = [shorten_name(path, 200) for path in paths[:_MISSING_SHOWN]]
    if names:
        others = paths.count() - len(names)
        listed = ", ".join(names) + (f" and {others} more" if others else "")
        raise Conflict(
            f"These files are incomplete: {listed}.",
            code="bytes_missing",
            next_step="Upload the missing bytes, then commit again.",
        )


def _lock_draft(draft: Version) -> None:
    """Lock the row and record the activity. Raises NotADraft if the draft is closed."""
    open_ = Version.objects.filter(pk=draft.pk, state=VersionState.DRAFT)
    if not open_.update(touched_at=clock.now()):
        raise NotADraft


def _clean_path(path: str) -> str:
    try:
        return DataFileIn(path=path, size_bytes=0, pieces=[]).path
    except ValueError as error:
        raise InvalidInput(
            f"{path[:100]!r} is not a valid path inside a dataset.",
            code="bad_path",
            field="path",
            next_step="Send a relative path with forward slashes, such as images/1.png.",
        ) from error


def _check_pieces(file: DataFileIn) -> None:
    checked_path(file.path)
    if len(file.pieces) != pieces_in(file.size_bytes):
        raise InvalidInput(
            f"{shorten_name(file.path, 200)} has {file.size_bytes} bytes, which is "
            f"{pieces_in(file.size_bytes)} pieces, not {len(file.pieces)}.",
            code="bad_pieces",
            field="files",
            next_step=f"Split files into pieces of {PIECE_BYTES} bytes.",
        )


def _two_sizes(path: str) -> InvalidInput:
    return InvalidInput(
        f"A piece of {shorten_name(path, 200)} is listed with two different sizes.",
        code="bad_pieces",
        field="files",
        next_step="Read the files again; one may have changed.",
    )


def _pieces_of(project: Project, sizes: dict[str, int]) -> dict[str, Piece]:
    """Return the project's pieces of these digests, those it did not know made now.

    Touching them first takes their locks, so that housekeeping leaves them alone.
    """
    pieces: dict[str, Piece] = {}
    digests = sorted(sizes)
    for start in range(0, len(digests), _LOOKED_UP_AT_ONCE):
        some = digests[start : start + _LOOKED_UP_AT_ONCE]
        pieces_queryset = Piece.objects.filter(project=project, sha256__in=some)
        pieces_queryset.filter(used_at__lt=clock.now() - _TOUCH_AGAIN).update(used_at=clock.now())
        fresh = set(some) - set(pieces_queryset.values_list("sha256", flat=True))
        Piece.objects.bulk_create(
            [Piece(project=project, sha256=sha, size_bytes=sizes[sha]) for sha in sorted(fresh)],
            ignore_conflicts=True,
        )
        pieces |= {piece.sha256: piece for piece in pieces_queryset.all()}
    for sha, piece in pieces.items():
        if piece.size_bytes != sizes[sha]:
            raise _two_sizes(sha)
    return pieces


@dataclass(frozen=True)
class _ArrivedPiece:
    """A piece that has arrived, at its place in what was stored."""

    sha256: str
    size_bytes: int
    offset: int


class _Frames:
    """Reads frames from a stream and passes on what is in them, each proved by its digest."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._rest = b""
        self._read_bytes = 0
        self.arrived: list[_ArrivedPiece] = []

    def contents(self) -> Iterator[bytes]:
        """Yield the bytes of the pieces, one after the other."""
        at = 0
        while header := self._read(_HEADER_BYTES, may_end=True):
            sha256 = header[:_DIGEST_BYTES].hex()
            length = int.from_bytes(header[_DIGEST_BYTES:])
            if not 0 < length <= PIECE_BYTES or len(self.arrived) >= _MOST_IN_A_BUNDLE:
                raise self._broken("A piece is longer than 16 MiB, or there are too many.")
            content = self._read(length)
            if hashlib.sha256(content).hexdigest() != sha256:
                raise self._broken(f"The bytes of a piece do not match its digest {sha256}.")
            self.arrived.append(_ArrivedPiece(sha256, length, at))
            at += length
            yield content

    def _read(self, size: int, *, may_end: bool = False) -> bytes:
        parts, missing = [], size
        while missing:
            if not self._rest:
                self._rest = next(self._chunks, b"")
                self._read_bytes += len(self._rest)
                if self._read_bytes > _FRAMES_BYTES:
                    raise TooLarge(
                        "A body can have at most 32 MiB of pieces.",
                        next_step="Send the pieces in several requests.",
                    )
                if not self._rest:
                    break
            parts.append(self._rest[:missing])
            self._rest = self._rest[len(parts[-1]) :]
            missing -= len(parts[-1])
        if missing and not (may_end and missing == size):
            raise self._broken("The body ends inside a piece.")
        return b"".join(parts)

    def _broken(self, message: str) -> SlipwayError:
        return InvalidInput(
            f"{message} Nothing was stored.",
            code="bad_frame",
            next_step="Send the pieces again; a file may have changed while it was read.",
        )


def _fill(
    project: Project, by: User, arrived_pieces: Sequence[_ArrivedPiece], stored: StoredBytes
) -> list[_ArrivedPiece]:
    """Fill missing pieces with their bytes, in one transaction. Returns those pieces."""
    by_digest = {arrived_piece.sha256: arrived_piece for arrived_piece in arrived_pieces}
    with transaction.atomic():
        pieces_queryset = Piece.objects.filter(
            project=project, sha256__in=list(by_digest)
        ).missing()
        pieces = list(pieces_queryset.select_for_update(no_key=True))
        pieces = [
            arrived_piece
            for arrived_piece in pieces
            if by_digest[arrived_piece.sha256].size_bytes == arrived_piece.size_bytes
        ]
        if not pieces:
            return []
        name = f"dataset-{stored.sha256[:12]}.bin"
        file = add_file(project=project, by=by, name=name, stored=stored)
        for piece in pieces:
            piece.file, piece.offset = file, by_digest[piece.sha256].offset
            piece.used_at = clock.now()
        Piece.objects.bulk_update(pieces, ["file", "offset", "used_at"], batch_size=500)
    return [by_digest[piece.sha256] for piece in pieces]


def _append(draft: Version, path: str, index: int, size_bytes: int, sha256: str) -> None:
    """Add one piece of a file. The first piece replaces an earlier file of that path."""
    key = key_of(path)
    entries = draft.entries.filter(key=key)
    if index == 0:
        entries.delete()
    elif (entries.aggregate(last=Max("index"))["last"] or 0) + 1 < index:
        raise NotFound
    length = min(PIECE_BYTES, size_bytes - index * PIECE_BYTES)
    pieces = _pieces_of(draft.dataset.project, {sha256: length} if length else {})
    draft.entries.filter(key=key, index__gte=index).delete()
    Entry.objects.create(
        version=draft,
        path=path,
        key=key,
        index=index,
        piece=pieces.get(sha256),
        size_bytes=size_bytes,
    )


def _finish(draft: Version, path: str, size_bytes: int) -> None:
    """Set the digest of a file once the last piece has arrived."""
    entries = draft.entries.filter(key=key_of(path), size_bytes=size_bytes)
    pieces = list(
        entries.exclude(piece=None).order_by("index").values_list("piece__sha256", flat=True)
    )
    if len(pieces) == pieces_in(size_bytes):
        entries.update(digest=digest_of(pieces))
