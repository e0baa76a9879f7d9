"""One contract that every place for bytes keeps: in memory, on disk, on a real S3 server."""

import errno
import hashlib
import random
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import s3fs

from portal.core.errors import InvalidInput, TooLarge, Unavailable
from portal.storage.adapters import s3 as s3_adapter
from portal.storage.adapters.fake import FakeStore
from portal.storage.adapters.fsspec_store import report_outages
from portal.storage.adapters.s3 import PART_BYTES
from portal.storage.backend import open_store
from portal.storage.ports import (
    BlobStore,
    BytesMissing,
    CleanupResult,
    StoredBytes,
    UploadDeclaration,
    digest_in,
    new_key,
)
from tests.portal.storage.swift_server import S3Server

GIB = 1024**3
SIZES = {"empty": 0, "one byte": 1, "small": 10_000, "three parts": 2 * PART_BYTES + 12_345}


@dataclass(frozen=True)
class Place:
    """A store under test, and how to leave a half-written upload of 10 bytes in it."""

    store: BlobStore
    leave_draft: Callable[[], object]
    count_drafts: Callable[[], int]


def _fake() -> Place:
    store = FakeStore()
    draft = (b"0123456789", datetime.now(UTC))
    return Place(store, lambda: store.drafts.update(d=draft), lambda: len(store.drafts))


def _disk(folder: Path) -> Place:
    drafts = folder / "drafts"

    def leave() -> None:
        drafts.mkdir(parents=True, exist_ok=True)
        (drafts / "abandoned").write_bytes(b"0123456789")

    def count() -> int:
        return len(list(drafts.iterdir())) if drafts.exists() else 0

    return Place(open_store(f"file://{folder}", {}), leave, count)


@cache
def _client(*options: tuple[str, Any]) -> Any:
    """Return a client that looks at what the store leaves; making one takes half a second."""
    return s3fs.S3FileSystem(
        client_kwargs={"region_name": "us-east-1"}, skip_instance_cache=True, **dict(options)
    )


def _s3(server: S3Server) -> Place:
    bucket = f"contract-{secrets.token_hex(6)}"
    server.make_bucket(bucket)
    files = _client(*server.options.items())
    name = {"Bucket": bucket, "Key": f"some/prefix/{new_key('ab' * 32)}"}

    def leave() -> None:
        begun = files.call_s3("create_multipart_upload", **name)
        sent = {"UploadId": begun["UploadId"], "PartNumber": 1, "Body": b"0123456789"}
        files.call_s3("upload_part", **sent, **name)

    def count() -> int:
        uploads = files.call_s3("list_multipart_uploads", Bucket=bucket).get("Uploads", [])
        drafts = files.find(f"{bucket}/some/prefix/drafts")
        return len(uploads) + len(drafts)

    return Place(open_store(f"s3://{bucket}/some/prefix", server.options), leave, count)


@pytest.fixture(params=["fake", "file", pytest.param("s3", marks=pytest.mark.thorough)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "fake":
        return _fake()
    if request.param == "file":
        return _disk(tmp_path / "blobs")
    return _s3(request.getfixturevalue("s3"))


def some_bytes(size: int) -> bytes:
    return random.Random(size).randbytes(size)  # noqa: S311  (content, not a secret)


def in_chunks(content: bytes, size: int = 1_000_003) -> Iterator[bytes]:
    for offset in range(0, len(content), size):
        yield content[offset : offset + size]


def put(
    store: BlobStore,
    content: bytes,
    promised: UploadDeclaration | None = None,
    limit_bytes: int = GIB,
) -> StoredBytes:
    return store.put(
        in_chunks(content), promised=promised or UploadDeclaration(), limit_bytes=limit_bytes
    )


def keys(store: BlobStore) -> list[str]:
    return [entry.key for entry in store.entries(digest_prefix="")]


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES.keys())
def test_what_is_put_is_read_back_under_its_digest(place: Place, size: int) -> None:
    content = some_bytes(size)
    digest = hashlib.sha256(content).hexdigest()

    for promised in (UploadDeclaration(sha256=digest, size_bytes=size), UploadDeclaration()):
        stored = put(place.store, content, promised)

        assert (stored.sha256, stored.size_bytes) == (digest, size)
        assert digest_in(stored.key) == digest
        assert stored.key.startswith(f"sha256/{digest[:2]}/{digest[2:]}")
        assert b"".join(place.store.read(stored.key, start=0, length=size)) == content
    assert place.count_drafts() == 0


def test_the_same_bytes_put_twice_are_two_objects_that_do_not_share_a_fate(place: Place) -> None:
    first, second = put(place.store, b"same"), put(place.store, b"same")

    assert first.key != second.key
    assert place.store.delete(first.key) == 4
    assert b"".join(place.store.read(second.key, start=0, length=4)) == b"same"


@pytest.mark.parametrize("size", [10_000, 2 * PART_BYTES], ids=["small", "large"])
def test_a_broken_promise_is_refused_and_leaves_nothing(place: Place, size: int) -> None:
    content = some_bytes(size)
    digest = hashlib.sha256(content).hexdigest()

    with pytest.raises(InvalidInput, match="SHA-256") as wrong_digest:
        put(place.store, content, UploadDeclaration(sha256="0" * 64))
    with pytest.raises(InvalidInput, match="declared") as too_short:
        put(place.store, content, UploadDeclaration(sha256=digest, size_bytes=size + 1))
    with pytest.raises(InvalidInput, match="declared") as too_long:
        put(place.store, content, UploadDeclaration(size_bytes=size - 1))

    codes = [caught.value.code for caught in (wrong_digest, too_short, too_long)]
    assert codes == ["digest_mismatch", "size_mismatch", "size_mismatch"]
    assert keys(place.store) == []
    assert place.count_drafts() == 0


def test_a_stream_over_the_limit_is_cut_at_the_first_chunk_too_many(place: Place) -> None:
    sent = []

    def endless() -> Iterator[bytes]:
        while True:
            sent.append(1)
            yield bytes(1_000_000)

    with pytest.raises(TooLarge):
        place.store.put(endless(), promised=UploadDeclaration(), limit_bytes=20_000_000)

    assert len(sent) == 21
    assert keys(place.store) == []
    assert place.count_drafts() == 0


def test_a_declared_size_over_the_limit_is_refused_before_a_byte_is_read(place: Place) -> None:
    untouched = iter([b"first"])

    with pytest.raises(TooLarge):
        place.store.put(untouched, promised=UploadDeclaration(size_bytes=11), limit_bytes=10)

    assert next(untouched) == b"first"


@pytest.mark.thorough
@pytest.mark.parametrize("after", [1_000, 2 * PART_BYTES], ids=["early", "late"])
def test_a_client_that_goes_away_leaves_nothing(place: Place, after: int) -> None:
    def broken() -> Iterator[bytes]:
        yield some_bytes(after)
        raise ConnectionResetError("the client went away")

    with pytest.raises(ConnectionResetError):
        place.store.put(broken(), promised=UploadDeclaration(), limit_bytes=GIB)

    assert keys(place.store) == []
    assert place.count_drafts() == 0


_RANGES = [(0, 1), (5, 10), (0, 0), (9_999, 1), (9_990, 100), (10_000, 5), (20_000, 5)]


def test_a_range_is_read_exactly_and_ends_with_the_object(place: Place) -> None:
    content = some_bytes(10_000)
    key = put(place.store, content).key

    for start, length in _RANGES:
        piece = b"".join(place.store.read(key, start=start, length=length))
        assert piece == content[start : start + length], (start, length)


@pytest.mark.thorough
def test_a_range_across_parts_is_read_exactly(place: Place) -> None:
    content = some_bytes(2 * PART_BYTES + 999)
    key = put(place.store, content).key
    start, length = PART_BYTES - 7, PART_BYTES + 20

    assert (
        b"".join(place.store.read(key, start=start, length=length))
        == (content[start : start + length])
    )


def test_reading_what_is_not_there_says_so(place: Place) -> None:
    put(place.store, b"something else")

    for length in (0, 10):
        with pytest.raises(BytesMissing):
            list(place.store.read(new_key("cd" * 32), start=0, length=length))


def test_a_key_we_did_not_make_reaches_nothing(place: Place) -> None:
    for key in ("../secret", "/etc/passwd", "sha256/../x", "drafts/x", ""):
        with pytest.raises(BytesMissing):
            list(place.store.read(key, start=0, length=10))


def test_deleting_frees_the_bytes_once(place: Place) -> None:
    key = put(place.store, some_bytes(10_000)).key

    assert place.store.delete(key) == 10_000
    assert place.store.delete(key) == 0
    assert keys(place.store) == []
    with pytest.raises(BytesMissing):
        list(place.store.read(key, start=0, length=1))


def test_entries_list_every_object_with_its_size_and_age(place: Place) -> None:
    began = datetime.now(UTC) - timedelta(minutes=1)
    stored = [put(place.store, f"content {number}".encode()) for number in range(5)]

    entries = {entry.key: entry for entry in place.store.entries(digest_prefix="")}

    assert set(entries) == {item.key for item in stored}
    assert all(entries[item.key].size_bytes == item.size_bytes for item in stored)
    ahead = datetime.now(UTC) + timedelta(minutes=1)
    assert all(began < entry.modified_at < ahead for entry in entries.values())


@pytest.mark.thorough
def test_entries_can_be_listed_by_the_begin_of_their_digest(place: Place) -> None:
    stored = [put(place.store, f"content {number}".encode()) for number in range(20)]

    for length in (1, 2):
        prefix = stored[0].sha256[:length]
        listed = {entry.key for entry in place.store.entries(digest_prefix=prefix)}
        assert listed == {item.key for item in stored if item.sha256.startswith(prefix)}


def test_drafts_are_cleared_by_age_and_never_listed(place: Place) -> None:
    kept = put(place.store, b"kept").key
    place.leave_draft()
    assert place.count_drafts() == 1
    assert keys(place.store) == [kept]

    young = place.store.clear_drafts(before=datetime.now(UTC) - timedelta(hours=1))
    old = place.store.clear_drafts(before=datetime.now(UTC) + timedelta(hours=1))

    assert young == CleanupResult()
    assert old == CleanupResult(count=1, size_bytes=10)
    assert place.count_drafts() == 0
    assert keys(place.store) == [kept]


@pytest.mark.thorough
def test_a_wrong_secret_is_an_outage_not_a_missing_file(s3: S3Server) -> None:
    bucket = f"closed-{secrets.token_hex(6)}"
    s3.make_bucket(bucket)
    store = open_store(f"s3://{bucket}", s3.options | {"secret": "wrong"})

    with pytest.raises(Unavailable) as caught:
        put(store, b"anything")

    assert caught.value.code == "storage_unavailable"
    assert caught.value.retry_after_s == 10


def test_a_dead_server_is_an_outage_within_seconds() -> None:
    store = open_store(
        "s3://bucket", {"endpoint_url": "http://127.0.0.1:9", "key": "k", "secret": "s"}
    )
    began = datetime.now(UTC)

    with pytest.raises(Unavailable):
        put(store, b"anything")

    assert datetime.now(UTC) - began < timedelta(seconds=10)


@pytest.mark.thorough
def test_a_frozen_server_is_an_outage_in_bounded_time(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = f"frozen-{secrets.token_hex(6)}"
    s3.make_bucket(bucket)
    store = open_store(f"s3://{bucket}", s3.options)
    key = put(store, b"anything").key
    monkeypatch.setattr(s3_adapter, "_CALL_S", 2)

    with s3.frozen():
        attempts: list[Callable[[], object]] = [
            lambda: put(store, b"small"),
            lambda: put(store, some_bytes(2 * PART_BYTES)),
            lambda: list(store.read(key, start=0, length=8)),
            lambda: store.delete(key),
        ]
        for attempt in attempts:
            began = datetime.now(UTC)
            with pytest.raises(Unavailable):
                attempt()
            assert datetime.now(UTC) - began < timedelta(seconds=10)

    assert b"".join(store.read(key, start=0, length=8)) == b"anything"


def test_a_full_disk_is_told_as_such() -> None:
    with pytest.raises(Unavailable) as caught, report_outages("file:///blobs"):
        raise OSError(errno.ENOSPC, "No space left on device")

    assert caught.value.code == "storage_full"


def test_a_folder_with_odd_characters_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "my data #1 100%25?"
    store = open_store((folder / "blobs").as_uri(), {})

    stored = put(store, b"content")

    assert (folder / "blobs" / stored.key).read_bytes() == b"content"


@pytest.mark.parametrize("url", ["ftp://host/x", "file://host/x", "file:///", "s3://", "blobs"])
def test_a_url_that_is_no_place_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="not a storage location"):
        open_store(url, {})
