"""The encrypted envelope of a backup: a passphrase, and chunks that each prove themselves.

    file   = MAGIC, length of header (4 bytes, big endian), header (JSON), MAC (32 bytes), chunks
    chunk  = AES-256-GCM of up to `chunk_bytes`, with a tag of 16 bytes
    nonce  = number of the chunk (11 bytes, big endian), 1 for the last chunk and 0 for any other
    keys   = scrypt(passphrase, salt) → HKDF-SHA256: one for the MAC of the header, one for chunks

Every chunk but the last is full and only the last may be empty. Chunks that were changed, moved,
left out, added or cut off are noticed (the STREAM construction of Hoang, Reyhanitabar, Rogaway and
Vizár), and the salt makes the keys of each file its own.
"""

import base64
import hmac
import io
import json
import os
import struct
from dataclasses import dataclass
from typing import IO, Any, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from portal.config.backup.errors import BackupError

MAGIC: Final = b"slipway encrypted backup\n"
CHUNK_BYTES: Final = 64 * 1024
MIN_PASSPHRASE: Final = 12
_TAG_BYTES: Final = 16
_MAC_BYTES: Final = 32
_SALT_BYTES: Final = 32
_MAX_HEADER_BYTES: Final = 4096
# scrypt with 128 MiB of memory. The file's own parameters are accepted within these bounds alone.
_COST: Final = 1 << 17
_COSTS: Final = frozenset(1 << power for power in range(15, 21))
_BLOCK: Final = 8


@dataclass(frozen=True)
class _Keys:
    header: bytes
    chunks: bytes


def _keys_of(passphrase: str, salt: bytes, cost: int) -> _Keys:
    secret = Scrypt(salt=salt, length=32, n=cost, r=_BLOCK, p=1).derive(passphrase.encode())
    derived = [
        HKDF(hashes.SHA256(), 32, salt, purpose).derive(secret)
        for purpose in (b"slipway backup header", b"slipway backup chunks")
    ]
    return _Keys(*derived)


def _nonce(number: int, *, is_last: bool) -> bytes:
    return number.to_bytes(11, "big") + bytes([is_last])


class EncryptingWriter:
    """A writable file that passes only ciphertext on to `file`. `close` finishes it."""

    def __init__(self, file: IO[bytes], passphrase: str) -> None:
        salt = os.urandom(_SALT_BYTES)
        header = json.dumps(
            {
                "format": 1,
                "kdf": "scrypt",
                "cost": _COST,
                "salt": base64.b64encode(salt).decode(),
                "cipher": "aes-256-gcm",
                "chunk_bytes": CHUNK_BYTES,
            }
        ).encode()
        keys = _keys_of(passphrase, salt, _COST)
        self._file = file
        self._cipher = AESGCM(keys.chunks)
        self._waiting = bytearray()
        self._number = 0
        self._position = 0
        file.write(MAGIC + struct.pack(">I", len(header)) + header)
        file.write(hmac.digest(keys.header, MAGIC + header, "sha256"))

    def write(self, data: bytes) -> int:
        """Buffer bytes and write every whole chunk."""
        self._waiting += data
        self._position += len(data)
        # At least a byte is left, for the last chunk.
        while len(self._waiting) > CHUNK_BYTES:
            chunk = bytes(self._waiting[:CHUNK_BYTES])
            del self._waiting[:CHUNK_BYTES]
            self._seal(chunk, is_last=False)
        return len(data)

    def tell(self) -> int:
        """Return the number of bytes written so far."""
        return self._position

    def close(self) -> None:
        """Write the last chunk. `file` stays open."""
        self._seal(bytes(self._waiting), is_last=True)
        self._waiting.clear()

    def _seal(self, chunk: bytes, *, is_last: bool) -> None:
        self._file.write(self._cipher.encrypt(_nonce(self._number, is_last=is_last), chunk, None))
        self._number += 1


class DecryptingReader(io.RawIOBase):
    """The plain bytes of an encrypted backup, readable at any position.

    No byte is returned of a chunk that is not authentic. Raises BackupError.
    """

    def __init__(self, file: IO[bytes], passphrase: str) -> None:
        super().__init__()
        self._file = file
        header, mac = _header_of(file)
        fields = _checked_header(header)
        keys = _keys_of(passphrase, fields.salt, fields.cost)
        if not hmac.compare_digest(mac, hmac.digest(keys.header, MAGIC + header, "sha256")):
            raise BackupError("the passphrase is wrong, or the beginning of the file was changed")
        self._cipher = AESGCM(keys.chunks)
        self._begin = file.tell()
        sealed = file.seek(0, io.SEEK_END) - self._begin
        self._last, rest = divmod(sealed, CHUNK_BYTES + _TAG_BYTES)
        if not rest and self._last:
            self._last, rest = self._last - 1, CHUNK_BYTES + _TAG_BYTES
        if rest < _TAG_BYTES:
            raise _cut()
        self.size_bytes = self._last * CHUNK_BYTES + rest - _TAG_BYTES
        self._position = 0
        self._number = -1
        self._chunk = b""
        self._open(self._last)

    def readable(self) -> bool:
        """Return True, since it can be read."""
        return True

    def seekable(self) -> bool:
        """Return True, since it can be read at any position."""
        return True

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move the position."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size_bytes}[whence]
        self._position = max(0, base + offset)
        return self._position

    def readinto(self, buffer: Any) -> int:
        """Read up to the end of a chunk."""
        view = memoryview(buffer).cast("B")
        if self._position >= self.size_bytes:
            return 0
        number, offset = divmod(self._position, CHUNK_BYTES)
        if number != self._number:
            self._open(number)
        piece = self._chunk[offset : offset + len(view)]
        view[: len(piece)] = piece
        self._position += len(piece)
        return len(piece)

    def _open(self, number: int) -> None:
        self._file.seek(self._begin + number * (CHUNK_BYTES + _TAG_BYTES))
        sealed = self._file.read(CHUNK_BYTES + _TAG_BYTES)
        nonce = _nonce(number, is_last=number == self._last)
        try:
            self._chunk = self._cipher.decrypt(nonce, sealed, None)
        except (InvalidTag, ValueError):
            if number == self._last:
                raise _cut() from None
            raise BackupError(
                f"the backup was changed: chunk {number + 1} of {self._last + 1} fails "
                "authentication; use another copy"
            ) from None
        self._number = number


@dataclass(frozen=True)
class _Header:
    salt: bytes
    cost: int


def _cut() -> BackupError:
    return BackupError("the end of the backup is missing or was changed; use another copy")


def _header_of(file: IO[bytes]) -> tuple[bytes, bytes]:
    file.seek(len(MAGIC))
    length = file.read(4)
    size = struct.unpack(">I", length)[0] if len(length) == 4 else 0
    if not 0 < size <= _MAX_HEADER_BYTES:
        raise _cut()
    header, mac = file.read(size), file.read(_MAC_BYTES)
    if len(header) < size or len(mac) < _MAC_BYTES:
        raise _cut()
    return header, mac


def _checked_header(header: bytes) -> _Header:
    try:
        fields = json.loads(header)
        salt = base64.b64decode(fields["salt"], validate=True)
        is_known = (
            fields["format"] == 1
            and fields["kdf"] == "scrypt"
            and fields["cost"] in _COSTS
            and fields["cipher"] == "aes-256-gcm"
            and fields["chunk_bytes"] == CHUNK_BYTES
            and len(salt) == _SALT_BYTES
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        is_known = False
    if not is_known:
        raise BackupError("this version cannot read the encryption of this backup")
    return _Header(salt, fields["cost"])
