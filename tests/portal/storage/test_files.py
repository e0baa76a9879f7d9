"""Files of projects: stored once, read back verified, mended, deleted."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_django import DjangoCaptureOnCommitCallbacks

from portal.accounts.models import AuditEvent
from portal.core.errors import InvalidInput, TooLarge
from portal.storage import services
from portal.storage.errors import FileDamaged
from portal.storage.models import Blob, StoredFile
from portal.storage.ports import BlobStore, UploadDeclaration
from portal.storage.services import delete_file, open_file, store_file
from tests.personas import Personas

pytestmark = pytest.mark.postgres

CONTENT = b"0123456789" * 1_000_000


def chunks(content: bytes = CONTENT) -> Iterator[bytes]:
    yield from (content[at : at + 700_000] for at in range(0, len(content), 700_000))


def make_file(people: Personas, content: bytes = CONTENT, name: str = "a.bin") -> StoredFile:
    return store_file(project=people.vision, by=people.bob, name=name, chunks=chunks(content))


def on_disk(tmp_path: Path) -> list[Path]:
    return [path for path in (tmp_path / "blobs").rglob("*") if path.is_file()]


def fresh(file: StoredFile) -> StoredFile:
    return StoredFile.objects.select_related("blob", "project").get(pk=file.pk)


def test_a_stored_file_is_read_back_whole_and_by_range(people: Personas, store: BlobStore) -> None:
    file = make_file(people)

    assert file.blob.sha256 == hashlib.sha256(CONTENT).hexdigest()
    assert b"".join(open_file(file=file)) == CONTENT
    assert b"".join(open_file(file=file, start=5_000_003, length=10)) == b"3456789012"
    assert b"".join(open_file(file=file, start=len(CONTENT))) == b""


def test_an_empty_file_is_a_file(people: Personas, store: BlobStore) -> None:
    file = make_file(people, b"")

    assert file.blob.size_bytes == 0
    assert b"".join(open_file(file=file)) == b""


@pytest.mark.parametrize(("start", "length"), [(-1, None), (0, 10_000_001), (5, -1)])
def test_a_range_outside_the_file_is_refused(
    people: Personas, store: BlobStore, start: int, length: int | None
) -> None:
    file = make_file(people)

    with pytest.raises(InvalidInput, match="10000000 bytes"):
        open_file(file=file, start=start, length=length)


def test_two_projects_with_the_same_bytes_share_one_blob(
    people: Personas,
    store: BlobStore,
    tmp_path: Path,
    django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks,
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        first = make_file(people)
        second = store_file(
            project=people.other, by=people.charlie, name="b.bin", chunks=chunks(CONTENT)
        )

    assert first.blob_id == second.blob_id
    assert Blob.objects.count() == 1
    assert len(on_disk(tmp_path)) == 1
    delete_file(file=first)
    assert b"".join(open_file(file=second)) == CONTENT


def test_bytes_that_break_a_promise_leave_neither_row_nor_bytes(
    people: Personas, store: BlobStore, tmp_path: Path
) -> None:
    with pytest.raises(InvalidInput):
        store_file(
            project=people.vision,
            by=people.bob,
            name="a.bin",
            chunks=chunks(),
            promised=UploadDeclaration(sha256="0" * 64),
        )

    assert not StoredFile.objects.exists()
    assert not Blob.objects.exists()
    assert on_disk(tmp_path) == []


def test_a_file_over_the_limit_is_refused(
    people: Personas, store: BlobStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(services, "MAX_FILE_BYTES", 9_000_000)

    with pytest.raises(TooLarge):
        make_file(people)

    assert on_disk(tmp_path) == []


@pytest.mark.parametrize("name", ["", "a/b", "a\\b", "..", ".", "a\0b", "a\u202eb", "x" * 256])
def test_a_name_that_is_no_file_name_is_refused_before_a_byte_is_read(
    people: Personas, store: BlobStore, name: str
) -> None:
    untouched = iter([b"first"])

    with pytest.raises(InvalidInput) as caught:
        store_file(project=people.vision, by=people.bob, name=name, chunks=untouched)

    assert caught.value.field == "name"
    assert next(untouched) == b"first"


def damage(tmp_path: Path, how: str) -> None:
    (path,) = on_disk(tmp_path)
    if how == "one bit":
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    elif how == "cut":
        path.write_bytes(path.read_bytes()[:-1])
    elif how == "longer":
        path.write_bytes(path.read_bytes() + b"!")
    else:
        path.unlink()


@pytest.mark.parametrize("how", ["one bit", "cut", "gone"])
def test_damaged_bytes_never_arrive_whole_and_an_upload_mends_them(
    people: Personas, store: BlobStore, tmp_path: Path, how: str
) -> None:
    file = make_file(people)
    damage(tmp_path, how)
    received = bytearray()

    def receive() -> None:
        for chunk in open_file(file=fresh(file)):
            received.extend(chunk)

    with pytest.raises(FileDamaged):
        receive()

    assert len(received) < len(CONTENT)
    assert fresh(file).blob.damaged_at is not None
    again = make_file(people, name="again.bin")
    assert again.blob_id == file.blob_id
    assert fresh(file).blob.damaged_at is None
    assert b"".join(open_file(file=fresh(file))) == CONTENT


def test_bytes_behind_the_end_of_a_file_are_never_served(
    people: Personas, store: BlobStore, tmp_path: Path
) -> None:
    file = make_file(people)
    damage(tmp_path, "longer")

    assert b"".join(open_file(file=file)) == CONTENT


def test_a_small_damaged_file_fails_before_anything_is_sent(
    people: Personas, store: BlobStore, tmp_path: Path
) -> None:
    file = make_file(people, b"small")
    damage(tmp_path, "one bit")

    with pytest.raises(FileDamaged):
        open_file(file=file)


def test_a_range_of_a_cut_file_is_an_error_not_a_short_answer(
    people: Personas, store: BlobStore, tmp_path: Path
) -> None:
    file = make_file(people)
    damage(tmp_path, "cut")

    with pytest.raises(FileDamaged, match="too early"):
        list(open_file(file=file, start=len(CONTENT) - 10, length=10))


def test_storing_and_deleting_are_audited(people: Personas, store: BlobStore) -> None:
    file = make_file(people)
    file_id = file.pk
    delete_file(file=file)

    events = AuditEvent.objects.filter(target_id=file_id).order_by("at")
    assert [event.verb for event in events] == ["file.create", "file.delete"]
    assert events[0].after == {"sha256": file.blob.sha256, "size_bytes": len(CONTENT)}
    assert events[1].before == events[0].after
