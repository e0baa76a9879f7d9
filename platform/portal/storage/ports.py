"""Port of the byte store: five operations on content-addressed objects."""

import re
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

CHUNK_BYTES = 1024 * 1024
_KEY = re.compile(r"\Asha256/([0-9a-f]{2})/([0-9a-f]{62})\.[0-9a-f]{16}\Z")


@dataclass(frozen=True)
class UploadDeclaration:
    """Size and digest declared by an uploader. None declares nothing."""

    sha256: str | None = None
    size_bytes: int | None = None


@dataclass(frozen=True)
class StoredBytes:
    """Bytes stored whole and verified under `key`. `sha256` is 64 lower-case hex digits."""

    key: str
    sha256: str
    size_bytes: int


@dataclass(frozen=True)
class StoredObject:
    """One object found in a store. `modified_at` is by the store's own clock, UTC-aware."""

    key: str
    size_bytes: int
    modified_at: datetime


@dataclass(frozen=True)
class CleanupResult:
    """Number and size of the objects a clean-up removed."""

    count: int = 0
    size_bytes: int = 0

    def __add__(self, other: "CleanupResult") -> "CleanupResult":
        return CleanupResult(self.count + other.count, self.size_bytes + other.size_bytes)


class BytesMissing(Exception):
    """The store has no object under this key."""


class BlobStore(Protocol):
    """A byte store. Every operation raises core.errors.Unavailable during an outage.

    An object is written once and never changed. Its key ends in random digits, so two uploads of
    the same bytes never share an object, and removing one can never remove another.
    """

    def put(
        self, chunks: Iterable[bytes], *, promised: UploadDeclaration, limit_bytes: int
    ) -> StoredBytes:
        """Write a stream in constant memory. The object appears whole, or not at all.

        Raises InvalidInput when the bytes differ from the declaration, TooLarge beyond
        `limit_bytes`, and whatever `chunks` raises. Nothing is visible after any of them.
        """

    def read(self, key: str, *, start: int, length: int) -> Iterator[bytes]:
        """Yield `length` bytes from `start`, or fewer when the object ends before.

        Raises BytesMissing, at the first chunk, when there is no such object.
        """

    def delete(self, key: str) -> int:
        """Remove an object and return its size in bytes, or 0 when there was none."""

    def entries(self, *, digest_prefix: str) -> Iterator[StoredObject]:
        """Yield the objects whose digest begins with 0 to 2 hex digits, in no order.

        In memory are at most 1,000 of them, or a 256th of all.
        """

    def clear_drafts(self, *, before: datetime) -> CleanupResult:
        """Remove incomplete uploads begun before that time."""


def new_key(sha256: str) -> str:
    """Return a new key for bytes of that digest, such as `sha256/ab/cdef….0123456789abcdef`."""
    return f"sha256/{sha256[:2]}/{sha256[2:]}.{secrets.token_hex(8)}"


def digest_in(key: str) -> str | None:
    """Return the digest a key contains, or None for a key of another format."""
    match = _KEY.match(key)
    return match[1] + match[2] if match else None
