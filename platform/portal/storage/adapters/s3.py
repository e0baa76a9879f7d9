"""Bytes in a bucket of Amazon S3 or of a server that speaks its protocol."""

import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import chain
from typing import Any

from portal.core.errors import Unavailable
from portal.storage.adapters.fsspec_store import FsspecStore, checked
from portal.storage.digests import Intake
from portal.storage.ports import (
    BytesMissing,
    CleanupResult,
    StoredBytes,
    StoredObject,
    UploadDeclaration,
    digest_in,
    new_key,
)

# A part is the unit of memory and of retry. S3 allows 10,000 parts, so 78 GiB an object.
PART_BYTES = 8 * 1024 * 1024
_CONNECT_TIMEOUT_S = 3
_READ_TIMEOUT_S = 10
_ATTEMPTS = 2
# One call with all its attempts: 8 MiB still pass at 280 kB a second.
_CALL_S = 30
# Bytes the server copies in one such call.
_COPY_BYTES = 256 * 1024 * 1024


def _with_defaults(options: dict[str, Any]) -> dict[str, Any]:
    config: dict[str, Any] = {
        "connect_timeout": _CONNECT_TIMEOUT_S,
        "read_timeout": _READ_TIMEOUT_S,
        "retries": {"total_max_attempts": 1},  # s3fs retries itself
        # Servers other than Amazon's do not all know the newer trailing checksums; every object is
        # verified by its SHA-256 here anyway.
        "request_checksum_calculation": "when_required",
        "response_checksum_validation": "when_required",
    }
    client: dict[str, Any] = {}
    if options.get("endpoint_url"):
        # Buckets as host names need a DNS wildcard, which such servers seldom have.
        config["s3"] = {"addressing_style": "path"}
        client["region_name"] = "us-east-1"
    merged = {"use_listings_cache": False} | options
    merged["config_kwargs"] = config | options.get("config_kwargs", {})
    merged["client_kwargs"] = client | options.get("client_kwargs", {})
    return merged


class _Bucket:
    """The calls of the protocol we use, each of them bounded in time."""

    def __init__(self, fs: Any, name: str) -> None:
        self._fs = fs
        self.name = name

    def call(self, method: str, **arguments: Any) -> dict[str, Any]:
        """Call a method of the protocol on this bucket. Raise TimeoutError after _CALL_S.

        The libraries' own timeouts do not run while a request waits to be sent, so a server that
        freezes just then would block us for ever.
        """
        answer: dict[str, Any] = self._fs.call_s3(
            method, timeout=_CALL_S, Bucket=self.name, **arguments
        )
        return answer

    def range(self, key: str, start: int, end: int) -> bytes:
        """Return the bytes from `start` to before `end`."""
        path = f"{self.name}/{key}"
        cat_file: bytes = self._fs.cat_file(path, start=start, end=end, timeout=_CALL_S)
        return cat_file


class _Upload:
    """A multipart upload of one object, which is not visible before it is completed."""

    def __init__(self, bucket: _Bucket, key: str) -> None:
        self._bucket = bucket
        self._key = key
        self._upload_id = ""
        self._parts: list[dict[str, Any]] = []

    def begin(self) -> None:
        """Begin the multipart upload. The sweep removes one neither completed nor aborted."""
        begun = self._bucket.call("create_multipart_upload", Key=self._key)
        self._upload_id = begun["UploadId"]

    def add(self, data: bytes) -> None:
        """Send the next part, of at least 5 MiB unless it is the last."""
        self._note(self._call_part("upload_part", Body=data))

    def add_copy(self, source: str, start: int, end: int) -> None:
        """Let the server copy the next part from another object."""
        answer = self._call_part(
            "upload_part_copy",
            CopySource={"Bucket": self._bucket.name, "Key": source},
            CopySourceRange=f"bytes={start}-{end - 1}",
        )
        self._note(answer["CopyPartResult"])

    def _call_part(self, method: str, **arguments: Any) -> dict[str, Any]:
        number = len(self._parts) + 1
        return self._bucket.call(
            method, Key=self._key, UploadId=self._upload_id, PartNumber=number, **arguments
        )

    def _note(self, answer: dict[str, Any]) -> None:
        self._parts.append({"PartNumber": len(self._parts) + 1, "ETag": answer["ETag"]})

    def complete(self) -> None:
        """Complete the upload, which makes the object visible."""
        self._bucket.call(
            "complete_multipart_upload",
            Key=self._key,
            UploadId=self._upload_id,
            MultipartUpload={"Parts": self._parts},
        )

    def abort(self) -> None:
        """Abort the upload, which discards its parts."""
        if self._upload_id:
            self._bucket.call("abort_multipart_upload", Key=self._key, UploadId=self._upload_id)


class S3Store(FsspecStore):
    """`s3://`: small objects and those whose digest was declared go straight to their key.

    A larger stream of unknown digest goes to a draft key and is copied by the server.
    """

    # Three libraries are used below, without a common error class, and importing them takes 0.5 s.
    _outage = Exception

    def __init__(self, root: str, options: dict[str, Any]) -> None:
        super().__init__("s3", root, _with_defaults(options))
        self._fs.retries = _ATTEMPTS
        name, _, prefix = root.partition("/")
        self._bucket = _Bucket(self._fs, name)
        self._prefix = f"{prefix}/" if prefix else ""

    def put(
        self, chunks: Iterable[bytes], *, promised: UploadDeclaration, limit_bytes: int
    ) -> StoredBytes:
        """See BlobStore."""
        intake = Intake(promised, limit_bytes)
        parts = _in_parts(intake.passing(chunks))
        first = next(parts, b"")
        if len(first) < PART_BYTES:
            # The stream has ended: the declaration is verified, and the digest is known.
            key = new_key(intake.sha256)
            with self.outages():
                self._bucket.call("put_object", Key=self._prefix + key, Body=first)
        elif promised.sha256 is not None:
            key = new_key(promised.sha256)
            with self._upload(self._prefix + key) as upload:
                self._send(upload, chain([first], parts))
        else:
            draft = f"{self._prefix}drafts/{secrets.token_hex(16)}"
            with self._upload(draft) as upload:
                self._send(upload, chain([first], parts))
            key = new_key(intake.sha256)
            try:
                with self._upload(self._prefix + key) as upload, self.outages():
                    for start in range(0, intake.size_bytes, _COPY_BYTES):
                        end = min(start + _COPY_BYTES, intake.size_bytes)
                        upload.add_copy(draft, start, end)
            finally:
                with suppress(Unavailable), self.outages():
                    self._bucket.call("delete_object", Key=draft)
        return StoredBytes(key, intake.sha256, intake.size_bytes)

    @contextmanager
    def _upload(self, key: str) -> Iterator[_Upload]:
        """Begin an upload, and complete it after the block, or abort it when the block fails."""
        upload = _Upload(self._bucket, key)
        try:
            with self.outages():
                upload.begin()
            yield upload
            with self.outages():
                upload.complete()
        except BaseException:
            with suppress(Unavailable), self.outages():
                upload.abort()
            raise

    def _send(self, upload: _Upload, parts: Iterable[bytes]) -> None:
        for part in parts:
            with self.outages():
                upload.add(part)

    def read(self, key: str, *, start: int, length: int) -> Iterator[bytes]:
        """See BlobStore."""
        end = start + length
        if length <= 0:
            self._size(key)
        while start < end:
            chunk = self._range(key, start, min(end, start + PART_BYTES))
            if not chunk:
                return
            start += len(chunk)
            yield chunk

    def _size(self, key: str) -> int:
        """Return an object's size. Raise BytesMissing."""
        with self.outages():
            try:
                details = self._bucket.call("head_object", Key=self._object_key(key))
            except FileNotFoundError:
                raise BytesMissing(key) from None
        return int(details["ContentLength"])

    def _object_key(self, key: str) -> str:
        return self._prefix + checked(key)

    def _range(self, key: str, start: int, end: int) -> bytes:
        """Return the bytes from `start` to before `end`. Empty behind the object's end."""
        with self.outages():
            try:
                return self._bucket.range(self._object_key(key), start, end)
            except FileNotFoundError:
                raise BytesMissing(key) from None
            except OSError as error:
                if _code_of(error) in ("InvalidRange", "416"):
                    return b""
                raise

    def delete(self, key: str) -> int:
        """See BlobStore."""
        try:
            size_bytes = self._size(key)
        except BytesMissing:
            return 0
        with self.outages():
            self._bucket.call("delete_object", Key=self._object_key(key))
        return size_bytes

    def entries(self, *, digest_prefix: str) -> Iterator[StoredObject]:
        """See BlobStore."""
        for stored_object in self._objects(f"sha256/{digest_prefix}"):
            if digest_in(stored_object.key) is not None:
                yield stored_object

    def _objects(self, prefix: str) -> Iterator[StoredObject]:
        """Yield the objects under a prefix, in pages of at most 1,000."""
        after: dict[str, str] = {}
        while True:
            with self.outages():
                page = self._bucket.call("list_objects_v2", Prefix=self._prefix + prefix, **after)
            for content in page.get("Contents", []):
                key = content["Key"].removeprefix(self._prefix)
                yield StoredObject(key, content["Size"], content["LastModified"].astimezone(UTC))
            if not page.get("IsTruncated"):
                return
            after = {"ContinuationToken": page["NextContinuationToken"]}

    def clear_drafts(self, *, before: datetime) -> CleanupResult:
        """See BlobStore."""
        cleared = CleanupResult()
        for draft in self._objects("drafts/"):
            if draft.modified_at < before:
                with self.outages():
                    self._bucket.call("delete_object", Key=self._prefix + draft.key)
                cleared += CleanupResult(1, draft.size_bytes)
        for upload in self._unfinished_uploads():
            if upload["Initiated"].astimezone(UTC) < before:
                cleared += self._abort(upload)
        return cleared

    def _unfinished_uploads(self) -> Iterator[dict[str, Any]]:
        after: dict[str, str] = {}
        while True:
            with self.outages():
                page = self._bucket.call("list_multipart_uploads", Prefix=self._prefix, **after)
            yield from page.get("Uploads", [])
            if not page.get("IsTruncated"):
                return
            after = {
                "KeyMarker": page["NextKeyMarker"],
                "UploadIdMarker": page["NextUploadIdMarker"],
            }

    def _abort(self, upload: dict[str, Any]) -> CleanupResult:
        name = {"Key": upload["Key"], "UploadId": upload["UploadId"]}
        size_bytes, marker = 0, 0
        with self.outages():
            try:
                while True:
                    page = self._bucket.call("list_parts", PartNumberMarker=marker, **name)
                    size_bytes += sum(part["Size"] for part in page.get("Parts", []))
                    if not page.get("IsTruncated"):
                        break
                    marker = page["NextPartNumberMarker"]
                self._bucket.call("abort_multipart_upload", **name)
            except FileNotFoundError:  # finished or aborted concurrently
                return CleanupResult()
        return CleanupResult(1, size_bytes)


def _code_of(error: OSError) -> str:
    """Return the code of the server's response, which s3fs stores as the cause of its own error."""
    answer: dict[str, Any] = getattr(error.__cause__, "response", {})
    return str(answer.get("Error", {}).get("Code", ""))


def _in_parts(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Cut a stream into parts of exactly PART_BYTES, the last one shorter (and never empty)."""
    waiting = bytearray()
    for chunk in chunks:
        view = memoryview(chunk)
        while view:
            taken = min(PART_BYTES - len(waiting), len(view))
            waiting += view[:taken]
            view = view[taken:]
            if len(waiting) == PART_BYTES:
                yield bytes(waiting)
                waiting.clear()
    if waiting:
        yield bytes(waiting)
