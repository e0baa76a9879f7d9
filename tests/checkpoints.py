"""Checkpoints for tests: folders as `slipway.distributed` leaves them, and how they travel."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slipway.schemas.checkpoints import (
    FILE_NAME,
    FORMAT,
    digest_of,
    ending,
    folder_name,
    header,
    padding,
)

FILES = {"__0_0.distcp": b"weights" * 300, ".metadata": b"", "__1_0.distcp": b"x" * 512}
# Writes what `FILES` says from within a task, as the step in its first argument.
WRITER = f"""
import hashlib, json, os, pathlib, sys
from slipway.schemas.checkpoints import digest_of, folder_name

FILES = {FILES!r}

def save(step):
    place = pathlib.Path(os.environ["SLIPWAY_PERSISTENT_DIR"]) / "checkpoints"
    draft = place / "draft-1"
    draft.mkdir(parents=True)
    facts = {{}}
    for name, content in FILES.items():
        (draft / name).write_bytes(content)
        facts[name] = {{"size_bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}}
    body = {{"format": 1, "step": step, "saved_at": "now", "strategy": "ddp", "world_size": 1,
            "torch": "2", "metric": None, "plain": {{}}, "files": facts}}
    (draft / "manifest.json").write_text(json.dumps(body | {{"sha256": digest_of(body)}}))
    draft.rename(place / folder_name(step))

"""


def make_manifest(
    step: int, files: Mapping[str, bytes] = FILES, *, named: Any = None, **changes: Any
) -> bytes:
    """Return a manifest of files, or of what is `named` instead; `changes` are signed with it."""
    entries = {
        name: {"size_bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        for name, content in files.items()
    }
    body = {
        "format": FORMAT,
        "step": step,
        "saved_at": "2026-11-01T00:00:00+00:00",
        "strategy": "ddp",
        "world_size": 1,
        "torch": "2.13",
        "metric": None,
        "plain": {},
        "files": entries if named is None else named,
        **changes,
    }
    return json.dumps(body | {"sha256": digest_of(body)}).encode()


def packed_of(manifest: bytes, files: Mapping[str, bytes] = FILES) -> bytes:
    """Return files behind a manifest, packed as checkpoints travel, whatever the manifest says."""
    members = [(FILE_NAME, manifest), *sorted(files.items())]
    parts = [header(name, len(data)) + data + padding(len(data)) for name, data in members]
    return b"".join(parts) + ending()


def make_packed(step: int, files: Mapping[str, bytes] = FILES) -> bytes:
    """Return a whole checkpoint as it travels."""
    return packed_of(make_manifest(step, files), files)


def make_folder(persistent: Path, step: int, files: Mapping[str, bytes] = FILES) -> Path:
    """Write a whole checkpoint into the folder of a job."""
    folder = persistent / "checkpoints" / folder_name(step)
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    (folder / FILE_NAME).write_bytes(make_manifest(step, files))
    return folder
