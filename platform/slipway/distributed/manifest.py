"""Manifest of a checkpoint folder: the size and digest of each file, and state stored as JSON.

A checkpoint is written to a draft folder, which is renamed once everything is on the disk. A
folder called step-… is therefore complete unless the disk or a person changed it. The digests
detect that.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slipway.distributed.errors import CheckpointError
from slipway.schemas.checkpoints import FILE_NAME, FORMAT, FileFacts, digest_of, is_file_name

_FOLDER = re.compile(r"step-(\d{10})\Z")
_CHUNK_BYTES = 4 * 2**20
_MAX_MANIFEST_BYTES = 256 * 2**20


@dataclass(frozen=True, slots=True)
class Manifest:
    """A checkpoint after `step` optimisation steps.

    `plain` holds the options of optimizers, schedules and the position in the data.
    """

    step: int
    saved_at: str
    strategy: str
    world_size: int
    torch: str
    metric: float | None = None
    plain: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, FileFacts] = field(default_factory=dict)

    def to_json(self) -> str:
        """Return the text of the manifest, which ends with a digest of itself."""
        body = {
            "format": FORMAT,
            "step": self.step,
            "saved_at": self.saved_at,
            "strategy": self.strategy,
            "world_size": self.world_size,
            "torch": self.torch,
            "metric": self.metric,
            "plain": self.plain,
            "files": {
                name: {"size_bytes": details.size_bytes, "sha256": details.sha256}
                for name, details in sorted(self.files.items())
            },
        }
        return json.dumps(body | {"sha256": digest_of(body)}, indent=1)


def saved_steps(folder: Path) -> dict[int, Path]:
    """Return the checkpoints in a folder by step, valid or not, oldest first."""
    if not folder.is_dir():
        return {}
    entries = {
        int(match[1]): entry
        for entry in folder.iterdir()
        if (match := _FOLDER.match(entry.name)) and entry.is_dir() and not entry.is_symlink()
    }
    return dict(sorted(entries.items()))


def file_facts(path: Path) -> FileFacts:
    """Read a file and return its facts."""
    digest = hashlib.sha256()
    size = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
            size += len(chunk)
    return FileFacts(size, digest.hexdigest())


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest to the disk, not only to its cache."""
    path = folder / FILE_NAME
    with path.open("x", encoding="utf-8") as file:
        file.write(manifest.to_json())
        file.flush()
        os.fsync(file.fileno())
    sync_folder(folder)


def sync_folder(folder: Path) -> None:
    """Sync the directory entries of a folder to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest of a checkpoint, or raise CheckpointError when it is torn or changed."""
    path = folder / FILE_NAME
    try:
        if path.stat().st_size > _MAX_MANIFEST_BYTES:
            raise ValueError("it is too large to be one")
        body = json.loads(path.read_text(encoding="utf-8"))
        digest = body.pop("sha256")
        if digest != digest_of(body):
            raise ValueError("its digest does not match")
        if body.pop("format") != FORMAT:
            raise ValueError("it has a format of another version of Slipway")
        files = {name: FileFacts(**details) for name, details in body.pop("files").items()}
        if bad := [name for name in files if not is_file_name(name)]:
            raise ValueError(f"it names a file {bad[0]!r}")
        return Manifest(files=files, **body)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(
            f"{path} is not a whole manifest: {error}.",
            next_step="Resume from an older checkpoint, or delete this folder.",
        ) from error


def find_damage(folder: Path, manifest: Manifest, names: Iterable[str]) -> str | None:
    """Return what is wrong with the first damaged file among `names`, None if none is."""
    for name in names:
        path, expected = folder / name, manifest.files[name]
        try:
            if path.is_symlink() or path.stat().st_size != expected.size_bytes:
                return f"{path} is not {expected.size_bytes} bytes long"
            if file_facts(path).sha256 != expected.sha256:
                return f"{path} was changed or damaged: its digest does not match"
        except OSError as error:
            return f"{path} cannot be read: {error.strerror}"
    return None


def _digest_of(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
