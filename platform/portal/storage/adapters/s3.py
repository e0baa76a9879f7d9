"""Bytes in a bucket of Amazon S3 or of a server that speaks its protocol."""

import secrets
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from botocore.exceptions import ClientError

from portal.core.errors import Unavailable
from portal.storage.adapters.fsspec_store import FsspecStore, telling_of_outages
from portal.storage.digests import Intake
from portal.storage.ports import (
    BytesMissing,
    Cleared,
    Entry,
    Promised,
    StoredBytes,
    digest_in,
    new_key,
)

# A part is the unit of memory and of retry. S3 allows 10,000 parts, so 78 GiB an object.
PART_BYTES = 8 * 1024 * 1024
_CONNECT_TIMEOUT_S = 3
_READ_TIMEOUT_S = 30
_ATTEMPTS = 3


def _with_defaults(options: dict[str, Any]) -> dict[str, Any]:
    config: dict[str, Any] = {
        "connect_timeout": _CONNECT_TIMEOUT_S,
        "read_timeout": _READ_TIMEOUT_S,
        "retries": {"mode": "standard", "total_max_attempts": _ATTEMPTS},
        # Servers other than Amazon's do not all know the newer trailing checksums; every object is
        # verified by its SHA-256 here anyway.
        "request_checksum_calculation": "when_required",
        "response_checksum_validation": "when_required",
    }
    client: dict[str, Any] = {}
    if options.get("endpoint_url"):
        # A bucket as a host name needs a wildcard in the DNS, which such servers seldom have.
        config["s3"] = {"addressing_style": "path"}
        client["region_name"] = "us-east-1"
    merged = {"use_listings_cache": False} | options
    merged["config_kwargs"] = config | options.get("config_kwargs", {})
    merged["client_kwargs"] = client | options.get("client_kwargs", {})
    return merged


class _Upload:
    """One object on its way up: a single PUT when it fits one part, a multipart upload otherwise.

    S3 shows nothing of a multipart upload before it is completed.
    """

    def __init__(self, fs: Any, path: str) -> None:
        self._fs = fs
        bucket, _, key = path.partition("/")
        self._object = {"Bucket": bucket, "Key": key}
        self._upload_id: str | None = None
        self._parts: list[dict[str, Any]] = []

    def add_part(self, data: bytes) -> None:
        """Send the next part, of at least 5 MiB unless it is the last."""
        if self._upload_id is None:
            begun = self._fs.call_s3("create_multipart_upload", **self._object)
            self._upload_id = begun["UploadId"]
        number = len(self._parts) + 1
        sent = self._fs.call_s3(
            "upload_part", UploadId=self._upload_id, PartNumber=number, Body=data, **self._object
        )
        self._parts.append({"PartNumber": number, "ETag": sent["ETag"]})

    def complete(self) -> None:
        """Make the object visible."""
        self._fs.call_s3(
            "complete_multipart_upload",
            UploadId=self._upload_id,
            MultipartUpload={"Parts": self._parts},
            **self._object,
        )
        self._upload_id = None

    def abort(self) -> None:
        """Throw away what was sent, unless it is complete; what fails here the sweep clears."""
        if self._upload_id is not None:
            self._fs.call_s3("abort_multipart_upload", UploadId=self._upload_id, **self._object)
            self._upload_id = None


class S3Store(FsspecStore):
    """`s3://`: small objects and those whose digest was declared go straight to their key.

    A larger stream of unknown digest goes to a draft key and is copied by the server.
    """

    def __init__(self, root: str, options: dict[str, Any]) -> None:
        super().__init__("s3", root, _with_defaults(options))
        self._bucket, _, prefix = root.partition("/")
        self._prefix = f"{prefix}/" if prefix else ""

    def put(self, chunks: Iterable[bytes], *, promised: Promised, limit_bytes: int) -> StoredBytes:
        """See BlobStore."""
        intake = Intake(promised, limit_bytes)
        parts = _in_parts(intake.passing(chunks))
        first = next(parts, b"")
        if len(first) < PART_BYTES:
            # The stream has ended, its promises are checked and its digest is known.
            key = new_key(intake.sha256)
            place = {"Bucket": self._bucket, "Key": self._prefix + key}
            with telling_of_outages(self.place):
                self._fs.call_s3("put_object", Body=first, **place)
        elif promised.sha256 is not None:
            key = new_key(promised.sha256)
            self._put_parts(self._path(key), first, parts)
        else:
            draft = f"{self._root}/drafts/{secrets.token_hex(16)}"
            self._put_parts(draft, first, parts)
            key = new_key(intake.sha256)
            with telling_of_outages(self.place):
                try:
                    self._fs.copy(draft, self._path(key))
                finally:
                    self._fs.rm_file(draft)
        return StoredBytes(key, intake.sha256, intake.size_bytes)

    def _put_parts(self, path: str, first: bytes, rest: Iterator[bytes]) -> None:
        upload = _Upload(self._fs, path)
        try:
            with telling_of_outages(self.place):
                upload.add_part(first)
            del first
            for part in rest:
                with telling_of_outages(self.place):
                    upload.add_part(part)
            with telling_of_outages(self.place):
                upload.complete()
        except BaseException:
            with suppress(Unavailable), telling_of_outages(self.place):
                upload.abort()
            raise

    def read(self, key: str, *, start: int, length: int) -> Iterator[bytes]:
        """See BlobStore."""
        path, end = self._path(key), start + length
        if length <= 0:
            with telling_of_outages(self.place):
                if not self._fs.exists(path):
                    raise BytesMissing(key)
        while start < end:
            chunk = self._range(key, path, start, min(end, start + PART_BYTES))
            if not chunk:
                return
            start += len(chunk)
            yield chunk

    def _range(self, key: str, path: str, start: int, end: int) -> bytes:
        """Return the bytes from `start` to before `end`; empty behind the object's end."""
        with telling_of_outages(self.place):
            try:
                found: bytes = self._fs.cat_file(path, start=start, end=end)
            except FileNotFoundError:
                raise BytesMissing(key) from None
            except OSError as error:
                if _code_of(error) in ("InvalidRange", "416"):
                    return b""
                raise
        return found

    def entries(self, *, digest_prefix: str) -> Iterator[Entry]:
        """See BlobStore."""
        for found in self._objects(f"sha256/{digest_prefix}"):
            if digest_in(found.key) is not None:
                yield found

    def _objects(self, prefix: str) -> Iterator[Entry]:
        """Yield what lies under a prefix, a page of at most 1,000 at a time."""
        place: dict[str, Any] = {"Bucket": self._bucket, "Prefix": self._prefix + prefix}
        while True:
            with telling_of_outages(self.place):
                page = self._fs.call_s3("list_objects_v2", **place)
            for found in page.get("Contents", []):
                key = found["Key"].removeprefix(self._prefix)
                yield Entry(key, found["Size"], found["LastModified"].astimezone(UTC))
            if not page.get("IsTruncated"):
                return
            place["ContinuationToken"] = page["NextContinuationToken"]

    def clear_drafts(self, *, before: datetime) -> Cleared:
        """See BlobStore."""
        cleared = Cleared()
        for draft in self._objects("drafts/"):
            if draft.modified_at < before:
                with telling_of_outages(self.place):
                    self._fs.rm_file(f"{self._root}/{draft.key}")
                cleared += Cleared(1, draft.size_bytes)
        for upload in self._unfinished_uploads():
            if upload["Initiated"].astimezone(UTC) < before:
                cleared += self._abort(upload)
        return cleared

    def _unfinished_uploads(self) -> Iterator[dict[str, Any]]:
        place: dict[str, Any] = {"Bucket": self._bucket, "Prefix": self._prefix}
        while True:
            with telling_of_outages(self.place):
                page = self._fs.call_s3("list_multipart_uploads", **place)
            yield from page.get("Uploads", [])
            if not page.get("IsTruncated"):
                return
            place["KeyMarker"] = page["NextKeyMarker"]
            place["UploadIdMarker"] = page["NextUploadIdMarker"]

    def _abort(self, upload: dict[str, Any]) -> Cleared:
        name = {"Bucket": self._bucket, "Key": upload["Key"], "UploadId": upload["UploadId"]}
        size_bytes, marker = 0, 0
        with telling_of_outages(self.place):
            try:
                while True:
                    page = self._fs.call_s3("list_parts", PartNumberMarker=marker, **name)
                    size_bytes += sum(part["Size"] for part in page.get("Parts", []))
                    if not page.get("IsTruncated"):
                        break
                    marker = page["NextPartNumberMarker"]
                self._fs.call_s3("abort_multipart_upload", **name)
            except FileNotFoundError:  # finished or aborted meanwhile
                return Cleared()
        return Cleared(1, size_bytes)


def _code_of(error: OSError) -> str:
    """Return the code in the server's answer, which s3fs keeps as the cause of its own error."""
    cause = error.__cause__
    return str(cause.response["Error"].get("Code")) if isinstance(cause, ClientError) else ""


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
