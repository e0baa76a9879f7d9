"""A store in memory that keeps every promise of the port, for tests of higher layers."""

from collections.abc import Iterable, Iterator
from datetime import datetime

from portal.core import clock
from portal.storage.digests import Intake
from portal.storage.ports import (
    CHUNK_BYTES,
    BytesMissing,
    CleanupResult,
    StoredBytes,
    StoredObject,
    UploadDeclaration,
    digest_in,
    new_key,
)


class FakeStore:
    """Objects and drafts in two dictionaries. A test may inspect and damage them."""

    def __init__(self) -> None:
        self.objects: dict[str, tuple[bytes, datetime]] = {}
        self.drafts: dict[str, tuple[bytes, datetime]] = {}

    def put(
        self, chunks: Iterable[bytes], *, promised: UploadDeclaration, limit_bytes: int
    ) -> StoredBytes:
        """See BlobStore."""
        intake = Intake(promised, limit_bytes)
        content = b"".join(intake.passing(chunks))
        key = new_key(intake.sha256)
        self.objects[key] = (content, clock.now())
        return StoredBytes(key, intake.sha256, len(content))

    def read(self, key: str, *, start: int, length: int) -> Iterator[bytes]:
        """See BlobStore."""
        if key not in self.objects:
            raise BytesMissing(key)
        content, _written_at = self.objects[key]
        requested = content[start : start + length]
        for offset in range(0, len(requested), CHUNK_BYTES):
            yield requested[offset : offset + CHUNK_BYTES]

    def delete(self, key: str) -> int:
        """See BlobStore."""
        content, _written_at = self.objects.pop(key, (b"", None))
        return len(content)

    def entries(self, *, digest_prefix: str) -> Iterator[StoredObject]:
        """See BlobStore."""
        for key, (content, written_at) in list(self.objects.items()):
            if (digest_in(key) or "").startswith(digest_prefix):
                yield StoredObject(key, len(content), written_at)

    def clear_drafts(self, *, before: datetime) -> CleanupResult:
        """See BlobStore."""
        old = [name for name, (_content, begun_at) in self.drafts.items() if begun_at < before]
        return sum(
            (CleanupResult(1, len(self.drafts.pop(name)[0])) for name in old), CleanupResult()
        )
