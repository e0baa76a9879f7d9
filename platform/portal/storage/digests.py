"""Verification of streams: incoming bytes against the declaration, outgoing against the row."""

import base64
import binascii
import hashlib
import re
from collections.abc import Iterable, Iterator

from portal.core.errors import InvalidInput, TooLarge
from portal.core.text import size_text
from portal.storage.errors import FileDamaged
from portal.storage.ports import UploadDeclaration

_HEX = re.compile(r"\A[0-9a-fA-F]{64}\Z")
_STRUCTURED = re.compile(r"(?:\A|,)\s*sha-256=:([A-Za-z0-9+/=]{44}):\s*(?:,|\Z)")


class Intake:
    """Hashes and counts a stream, and stops it at the first byte too many."""

    def __init__(self, promised: UploadDeclaration, limit_bytes: int) -> None:
        self._promised = promised
        self._limit_bytes = limit_bytes
        self._hash = hashlib.sha256()
        self.size_bytes = 0
        if promised.size_bytes is not None:
            self._check_limit(promised.size_bytes)

    @property
    def sha256(self) -> str:
        """SHA-256 of the bytes so far, 64 lower-case hex digits."""
        return self._hash.hexdigest()

    def passing(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the chunks, then check the declared size and digest.

        Raises TooLarge or InvalidInput. The consumer must then discard what was written.
        """
        for chunk in chunks:
            self.size_bytes += len(chunk)
            self._check_limit(self.size_bytes)
            if self._promised.size_bytes is not None:
                self._check_size(final=False)
            self._hash.update(chunk)
            yield chunk
        self._check_size(final=True)
        if self._promised.sha256 not in (None, self.sha256):
            raise InvalidInput(
                f"The bytes received have the SHA-256 {self.sha256}, not the declared "
                f"{self._promised.sha256}; nothing was stored.",
                code="digest_mismatch",
                field="sha256",
                next_step=(
                    "Send the file again; if it happens again, the file is changing while it is "
                    "read."
                ),
            )

    def _check_limit(self, size_bytes: int) -> None:
        if size_bytes > self._limit_bytes:
            raise TooLarge(
                f"The file is larger than {size_text(self._limit_bytes)}; nothing was stored.",
                code="file_too_large",
                field="size_bytes",
                next_step="Split it into several files.",
            )

    def _check_size(self, *, final: bool) -> None:
        promised = self._promised.size_bytes
        if promised is None or (self.size_bytes <= promised and not final):
            return
        if self.size_bytes != promised:
            raise InvalidInput(
                f"{promised} bytes were declared and {self.size_bytes} were received; nothing "
                "was stored.",
                code="size_mismatch",
                field="size_bytes",
                next_step="Send the complete file again.",
            )


def verified(chunks: Iterable[bytes], *, sha256: str, size_bytes: int) -> Iterator[bytes]:
    """Yield a whole object, its last chunk only once the digest of all of it is verified.

    So no reader ever receives the full length of wrong bytes. Raises FileDamaged.
    """
    measure = hashlib.sha256()
    seen_bytes = 0
    held: bytes | None = None
    for chunk in chunks:
        measure.update(chunk)
        seen_bytes += len(chunk)
        if held is not None:
            yield held
        held = chunk
    if seen_bytes != size_bytes or measure.hexdigest() != sha256:
        raise FileDamaged(
            f"The stored bytes of this file have changed: {size_bytes} bytes with the SHA-256 "
            f"{sha256} were stored; now there are {seen_bytes} bytes with another digest."
        )
    if held is not None:
        yield held


def sha256_from(text: str, *, field: str) -> str:
    """Return the digest in `text`, as 64 lower-case hex digits.

    Takes hex, or the form of RFC 9530 (`sha-256=:BASE64:`). Raises InvalidInput naming `field`.
    """
    text = text.strip()
    if _HEX.match(text):
        return text.lower()
    match = _STRUCTURED.search(text)
    if match:
        try:
            raw = base64.b64decode(match[1], validate=True)
        except binascii.Error:
            raw = b""
        if len(raw) == hashlib.sha256().digest_size:
            return raw.hex()
    raise InvalidInput(
        "This is not a SHA-256 digest.",
        code="invalid_digest",
        field=field,
        next_step="Send 64 hex digits, or sha-256=:BASE64: as in RFC 9530.",
    )


def structured(sha256: str) -> str:
    """Return a digest in the form of RFC 9530, for the header Repr-Digest."""
    return f"sha-256=:{base64.b64encode(bytes.fromhex(sha256)).decode('ascii')}:"
