"""What nothing refers to is freed after a day, and nothing else ever is."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from pytest_django import DjangoCaptureOnCommitCallbacks

from portal.core import clock
from portal.core.errors import Unavailable
from portal.storage import retention, services, tasks
from portal.storage.adapters.fake import FakeStore
from portal.storage.models import Blob, StoredFile
from portal.storage.ports import CleanupResult, UploadDeclaration
from portal.storage.retention import SweepResult, sweep
from portal.storage.services import delete_file, open_file, receive_bytes, store_file
from tests.personas import Personas

pytestmark = pytest.mark.postgres

DAY = timedelta(days=1, seconds=1)
NOTHING = SweepResult(CleanupResult(), CleanupResult(), CleanupResult())


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> FakeStore:
    fake = FakeStore()
    put_in_force(fake, monkeypatch)
    return fake


def put_in_force(fake: FakeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "blob_store", lambda: fake)
    monkeypatch.setattr(retention, "blob_store", lambda: fake)


def make_file(people: Personas, content: bytes = b"content") -> StoredFile:
    return store_file(project=people.vision, by=people.bob, name="a", chunks=iter([content]))


def sweep_after(wait: timedelta) -> SweepResult:
    with clock.frozen(clock.now() + wait):
        return sweep()


def read(file: StoredFile) -> bytes:
    return b"".join(open_file(file=StoredFile.objects.select_related("blob").get(pk=file.pk)))


def test_bytes_are_freed_a_day_after_their_last_file_is_gone(
    people: Personas,
    store: FakeStore,
    django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks,
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        first, second = make_file(people), make_file(people)
    other = make_file(people, b"other")
    delete_file(file=first)
    assert sweep_after(DAY) == NOTHING
    delete_file(file=second)
    assert sweep() == NOTHING

    assert sweep_after(timedelta(hours=23)) == NOTHING
    swept = sweep_after(DAY)

    assert swept.blobs == CleanupResult(count=1, size_bytes=len(b"content"))
    assert swept.bytes_freed == len(b"content")
    assert list(store.objects) == [other.blob.key]
    assert Blob.objects.count() == 1
    assert read(other) == b"other"


def test_a_file_that_comes_back_within_the_day_keeps_its_bytes(
    people: Personas,
    store: FakeStore,
    django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks,
) -> None:
    delete_file(file=make_file(people))
    sweep()
    with django_capture_on_commit_callbacks(execute=True):
        again = make_file(people)

    assert sweep_after(DAY) == NOTHING
    assert read(again) == b"content"
    assert len(store.objects) == 1


def test_the_day_begins_anew_when_the_last_file_goes_again(
    people: Personas, store: FakeStore
) -> None:
    delete_file(file=make_file(people))
    sweep()
    with clock.frozen(clock.now() + timedelta(hours=20)):
        delete_file(file=make_file(people))
        sweep()

    assert sweep_after(timedelta(hours=25)).blobs == CleanupResult()
    assert sweep_after(timedelta(hours=45)).blobs.count == 1


def test_an_upload_killed_before_its_commit_is_freed_after_a_day(
    people: Personas, store: FakeStore
) -> None:
    receive_bytes(chunks=iter([b"never kept"]), promised=UploadDeclaration())

    assert sweep() == NOTHING
    assert sweep_after(DAY).orphans == CleanupResult(count=1, size_bytes=10)
    assert store.objects == {}


def test_half_written_uploads_are_freed_after_a_day(people: Personas, store: FakeStore) -> None:
    store.drafts["draft"] = (b"half", clock.now())

    assert sweep() == NOTHING
    assert sweep_after(DAY).drafts == CleanupResult(count=1, size_bytes=4)


def test_damaged_bytes_that_were_replaced_are_freed(people: Personas, store: FakeStore) -> None:
    file = make_file(people)
    old = file.blob.key
    store.objects[old] = (b"CONTENT", clock.now())
    Blob.objects.update(damaged_at=clock.now())
    again = make_file(people)
    assert set(store.objects) == {old, Blob.objects.get().key}

    assert sweep_after(DAY).orphans.count == 1
    assert read(file) == read(again) == b"content"


def test_a_store_full_of_unknown_objects_is_left_alone(
    people: Personas, store: FakeStore, caplog: pytest.LogCaptureFixture
) -> None:
    make_file(people)
    for number in range(4000):
        store.put(iter([b"%d" % number]), promised=UploadDeclaration(), limit_bytes=100)

    assert sweep_after(DAY) == NOTHING
    assert len(store.objects) == 4001
    assert "storage_mismatch" in caplog.text


class Interrupted(FakeStore):
    """Runs something at the worst moment: the row is condemned, its bytes still rest."""

    def __init__(self) -> None:
        super().__init__()
        self.before_delete: Callable[[], object] = lambda: None

    def delete(self, key: str) -> int:
        """See BlobStore."""
        self.before_delete()
        return super().delete(key)


def test_an_upload_in_the_middle_of_a_sweep_keeps_its_own_bytes(
    people: Personas, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Interrupted()
    put_in_force(store, monkeypatch)
    delete_file(file=make_file(people))
    sweep()
    uploaded: list[StoredFile] = []

    def upload_once() -> None:
        store.before_delete = lambda: None
        uploaded.append(make_file(people))

    store.before_delete = upload_once
    swept = sweep_after(DAY)

    assert swept.blobs.count == 1
    assert read(uploaded[0]) == b"content"
    assert sweep_after(2 * DAY) == NOTHING
    assert read(uploaded[0]) == b"content"


def test_a_sweep_killed_half_way_is_finished_by_the_next(
    people: Personas, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Interrupted()
    put_in_force(store, monkeypatch)
    delete_file(file=make_file(people))
    sweep()

    def die() -> None:
        store.before_delete = lambda: None
        raise Unavailable("killed", next_step="")

    store.before_delete = die
    with pytest.raises(Unavailable):
        sweep_after(DAY)
    file = make_file(people)

    assert sweep_after(DAY).blobs.count == 1
    assert read(file) == b"content"
    assert Blob.objects.count() == 1


def test_a_condemned_blob_is_never_claimed_again(people: Personas, store: FakeStore) -> None:
    file = make_file(people)
    blob = file.blob
    delete_file(file=file)
    sweep()
    late = clock.now() + DAY

    assert Blob.objects.condemn(blob.pk, unreferenced_before=late)
    assert not Blob.objects.condemn(blob.pk, unreferenced_before=late)
    again = make_file(people)

    assert again.blob_id != blob.pk


def test_a_blob_in_use_cannot_be_condemned(people: Personas, store: FakeStore) -> None:
    blob = make_file(people).blob
    Blob.objects.update(unreferenced_since=clock.now())

    assert not Blob.objects.condemn(blob.pk, unreferenced_before=clock.now() + DAY)


def test_many_strays_go_in_several_sweeps(
    people: Personas, store: FakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "_MOST_AT_ONCE", 3)
    for number in range(5):
        receive_bytes(chunks=iter([b"%d" % number]), promised=UploadDeclaration())

    with clock.frozen(clock.now() + DAY):
        freed = [sweep(digest_prefixes=[""]).orphans.count for _ in range(3)]

    assert freed == [3, 2, 0]


def test_every_shard_has_its_turn_within_a_day(people: Personas, store: FakeStore) -> None:
    for number in range(100):
        receive_bytes(chunks=iter([b"%d" % number]), promised=UploadDeclaration())

    for hour in range(24, 41):
        with clock.frozen(clock.now() + timedelta(hours=hour, seconds=1)):
            tasks.sweep()

    assert store.objects == {}
