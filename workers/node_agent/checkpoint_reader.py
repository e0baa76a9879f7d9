"""Checkpoints as a job left them on this node: read with suspicion, for user code owns the folder.

No link is followed, nothing but plain files is opened, and what a file holds counts only once its
digest is that of the manifest.
"""

import hashlib
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from slipway.schemas.checkpoints import (
    FILE_NAME,
    MAX_MANIFEST_BYTES,
    BadCheckpoint,
    ManifestContents,
    contents_of,
    ending,
    folder_name,
    header,
    padding,
)

PLACE: Final = "checkpoints"
_STEP = re.compile(r"step-(\d{10})\Z")
_BLOCK: Final = 1 << 20
_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Do not block on a named pipe that user code may have created.
_FILE_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@contextmanager
def opened(folder: Path | str, *, inside: int | None = None) -> Iterator[int]:
    """Yield a descriptor of a folder that is not a link. Raises OSError."""
    descriptor = os.open(folder, _FOLDER_FLAGS, dir_fd=inside)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def open_checkpoint_folder(persistent: Path) -> Iterator[int]:
    """Yield a descriptor of the folder of a job's checkpoints. Raises OSError."""
    with opened(persistent) as kept, opened(PLACE, inside=kept) as place:
        yield place


def steps_in(persistent: Path) -> list[int]:
    """Return the steps with checkpoints, complete or not, newest first."""
    try:
        with open_checkpoint_folder(persistent) as place, os.scandir(place) as entries:
            names = [entry.name for entry in entries]
    except OSError:
        return []
    return sorted((int(match[1]) for name in names if (match := _STEP.match(name))), reverse=True)


def has_all_files(persistent: Path, step: int) -> bool:
    """Return whether all files of a checkpoint exist in their recorded sizes."""
    try:
        with (
            open_checkpoint_folder(persistent) as place,
            opened(folder_name(step), inside=place) as folder,
        ):
            contents = contents_of(manifest_in(folder))
            for name, details in contents.files.items():
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
                if not stat.S_ISREG(status.st_mode) or status.st_size != details.size_bytes:
                    return False
    except (OSError, BadCheckpoint):
        return False
    return contents.step == step


def manifest_in(folder: int) -> bytes:
    """Return the manifest of an open checkpoint. Raises OSError, BadCheckpoint."""
    with _plain_file(folder, FILE_NAME) as (file, size):
        if not 0 < size <= MAX_MANIFEST_BYTES:
            raise BadCheckpoint(f"its manifest has {size} bytes")
        return b"".join(_blocks(file, size))


def packed(folder: int, manifest: bytes, contents: ManifestContents) -> Iterator[bytes]:
    """Yield an open checkpoint in its transfer format. Raises OSError, BadCheckpoint on the way."""
    yield header(FILE_NAME, len(manifest)) + manifest + padding(len(manifest))
    for name in sorted(contents.files):
        details = contents.files[name]
        digest = hashlib.sha256()
        with _plain_file(folder, name) as (file, size):
            if size != details.size_bytes:
                raise BadCheckpoint(f"{name} has {size} bytes, not {details.size_bytes}")
            yield header(name, size)
            for block in _blocks(file, size):
                digest.update(block)
                yield block
        if digest.hexdigest() != details.sha256:
            raise BadCheckpoint(f"{name} does not match its manifest")
        yield padding(details.size_bytes)
    yield ending()


@contextmanager
def _plain_file(folder: int, name: str) -> Iterator[tuple[int, int]]:
    """A descriptor of a file and its size."""
    descriptor = os.open(name, _FILE_FLAGS, dir_fd=folder)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise BadCheckpoint(f"{name} is not a regular file")
        yield descriptor, status.st_size
    finally:
        os.close(descriptor)


def _blocks(file: int, size: int) -> Iterator[bytes]:
    left = size
    while left:
        block = os.read(file, min(left, _BLOCK))
        if not block:
            raise BadCheckpoint("a file became shorter while it was read")
        left -= len(block)
        yield block
