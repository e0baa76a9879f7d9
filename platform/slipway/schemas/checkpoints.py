"""Contents of a checkpoint folder, and its format between nodes and the portal.

On its way a checkpoint is a tar of the manifest and then of the files it names, in order of their
names, with headers that follow from name and size alone. So each byte that is not a file's content
is known beforehand, and a receiver compares instead of interpreting: nothing can be a link, lead
out of the folder or be larger than said.
"""

import hashlib
import json
import re
import tarfile
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from slipway.schemas.json_text import read_json

FORMAT: Final = 1
FILE_NAME: Final = "manifest.json"
# Checkpoints beyond these limits are not copied.
MAX_MANIFEST_BYTES: Final = 32 * 2**20
MAX_FILES: Final = 10_000
_FILE = re.compile(r"[A-Za-z0-9_.-]{1,200}\Z")
_NAME_LIMIT: Final = 100  # of a plain tar header
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")
_MOST: Final = 2**53
_BLOCK: Final = 512
_END: Final = bytes(2 * _BLOCK)
_RESERVED: Final = frozenset({".", "..", FILE_NAME})


class BadCheckpoint(ValueError):
    """The checkpoint is not complete or not valid. The message says why."""


class CheckpointTooLarge(BadCheckpoint):
    """The checkpoint exceeds the size limit."""


@dataclass(frozen=True, slots=True)
class FileFacts:
    """Size and SHA-256 of one file."""

    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class ManifestContents:
    """Contents of a manifest: the step, and the files by name."""

    step: int
    files: Mapping[str, FileFacts]

    @property
    def size_bytes(self) -> int:
        """Bytes of all files, without the manifest."""
        return sum(file.size_bytes for file in self.files.values())


def folder_name(step: int) -> str:
    """Return the name of the folder of a checkpoint."""
    return f"step-{step:010d}"


def is_file_name(name: str) -> bool:
    """Return whether a manifest may contain this file name."""
    return bool(_FILE.match(name)) and name not in _RESERVED


def digest_of(body: Mapping[str, Any]) -> str:
    """Return the digest of a manifest, computed over everything but the digest itself."""
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def contents_of(manifest: bytes) -> ManifestContents:
    """Read an untrusted manifest. Raises BadCheckpoint."""
    try:
        body = read_json(manifest)
        if body.pop("sha256") != digest_of(body):
            raise BadCheckpoint("the digest of its manifest does not match")
        if body["format"] != FORMAT:
            raise BadCheckpoint("it has a format of another version of Slipway")
        step, named = _count(body["step"]), body["files"]
        if len(named) > MAX_FILES:
            raise BadCheckpoint(f"it has more than {MAX_FILES} files")
        files = {
            name: FileFacts(_count(details["size_bytes"]), _sha256(details["sha256"]))
            for name, details in named.items()
            if _check_file_name(name)
        }
    except BadCheckpoint:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise BadCheckpoint("its manifest is none") from error
    return ManifestContents(step, files)


def _check_file_name(name: str) -> bool:
    if not is_file_name(name) or len(name) > _NAME_LIMIT:
        raise BadCheckpoint(f"it names a file {name[:100]!r}")
    return True


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST:
        raise BadCheckpoint("its manifest is none")
    return value


def _sha256(value: str) -> str:
    if not _SHA256.match(value):
        raise BadCheckpoint("its manifest is none")
    return value


def header(name: str, size_bytes: int) -> bytes:
    """Return the tar header of a file."""
    member = tarfile.TarInfo(name)
    member.size, member.mode = size_bytes, 0o600
    return member.tobuf(format=tarfile.GNU_FORMAT)


def padding(size_bytes: int) -> bytes:
    """Return the zero padding after a file of that size."""
    return bytes(-size_bytes % _BLOCK)


def ending() -> bytes:
    """Return the end of the tar."""
    return _END


def size_of_tar(manifest: bytes, contents: ManifestContents) -> int:
    """Return the size of the tar in bytes."""
    sizes = [len(manifest), *(file.size_bytes for file in contents.files.values())]
    return sum(_BLOCK + size + -size % _BLOCK for size in sizes) + len(_END)


def _ignore(_name: str, _piece: bytes) -> None:
    pass


class Receiver:
    """Verifies an incoming checkpoint piece by piece, in constant memory.

    `write` receives each piece of content with its file's name before the file is verified.
    Everything is verified only after `finish`.
    """

    def __init__(
        self, step: int, *, limit_bytes: int, write: Callable[[str, bytes], None] = _ignore
    ) -> None:
        self._step = step
        self._limit_bytes = limit_bytes
        self._write = write
        self._is_whole = False
        self.size_bytes = 0
        self._reading = self._read()
        self._most = next(self._reading)

    def feed(self, piece: bytes) -> None:
        """Process received bytes. Raises BadCheckpoint at the first unexpected byte."""
        view = memoryview(piece)
        while view:
            part, view = view[: self._most], view[self._most :]
            self._most = self._reading.send(bytes(part))

    def finish(self) -> None:
        """Raise BadCheckpoint unless the checkpoint is complete."""
        if not self._is_whole:
            raise BadCheckpoint("it ends too early")

    def _read(self) -> Generator[int, bytes, None]:
        """Yield the maximum number of bytes to read, and receive some of them."""
        manifest = yield from self._manifest()
        contents = contents_of(manifest)
        if contents.step != self._step:
            raise BadCheckpoint(f"it is of step {contents.step}")
        self.size_bytes = contents.size_bytes
        if self.size_bytes > self._limit_bytes:
            raise CheckpointTooLarge(f"it has {self.size_bytes} bytes")
        self._write(FILE_NAME, manifest)
        for name in sorted(contents.files):
            yield from self._file(name, contents.files[name])
        yield from self._expect(_END)
        self._is_whole = True
        yield 1
        raise BadCheckpoint("something follows its end")

    def _manifest(self) -> Generator[int, bytes, bytes]:
        first = yield from _exactly(_BLOCK)
        size = _size_in(first)
        if first != header(FILE_NAME, size):
            raise BadCheckpoint("it does not begin with its manifest")
        manifest = yield from _exactly(size)
        yield from self._expect(padding(size))
        return manifest

    def _file(self, name: str, details: FileFacts) -> Generator[int, bytes, None]:
        yield from self._expect(header(name, details.size_bytes))
        digest = hashlib.sha256()
        left = details.size_bytes
        self._write(name, b"")
        while left:
            piece = yield left
            left -= len(piece)
            digest.update(piece)
            self._write(name, piece)
        if digest.hexdigest() != details.sha256:
            raise BadCheckpoint(f"{name} is not what its manifest says")
        yield from self._expect(padding(details.size_bytes))

    def _expect(self, expected: bytes) -> Generator[int, bytes, None]:
        if expected and (yield from _exactly(len(expected))) != expected:
            raise BadCheckpoint("it is not packed as checkpoints are")


def _exactly(size: int) -> Generator[int, bytes, bytes]:
    data = bytearray()
    while len(data) < size:
        data += yield size - len(data)
    return bytes(data)


def _size_in(block: bytes) -> int:
    """Return the size from a header, if it is plausible for a manifest."""
    try:
        size = int(block[124:135], 8)
    except ValueError:
        size = 0
    if not 0 < size <= MAX_MANIFEST_BYTES:
        raise BadCheckpoint("it does not begin with its manifest")
    return size
