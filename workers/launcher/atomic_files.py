"""Small files that survive the death of their writer at any moment."""

import json
import os
from pathlib import Path
from typing import Any


def write_atomically(path: Path, text: str, *, mode: int = 0o600) -> None:
    """Replace a file in one step: a reader sees the old text or the new, never a part.

    Raises OSError, for example if the disk is full. The old file then remains.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        # Create the file and do not follow links: a container may have placed a link here.
        draft.unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(draft, flags, mode)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


def create_once(path: Path, text: str) -> bool:
    """Create a complete file, or return False if it exists already."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.once")
    write_atomically(draft, text)
    try:
        path.hardlink_to(draft)
    except FileExistsError:
        return False
    finally:
        draft.unlink(missing_ok=True)
    return True


def read_json(path: Path, *, limit_bytes: int = 1 << 20) -> dict[str, Any] | None:
    """Read a JSON object. Return None if the file is missing or is not a JSON object.

    Links are not followed and large files are not read, because a container may have written them.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        try:
            text = file.read(limit_bytes + 1)
        except OSError:
            return None
    if len(text) > limit_bytes:
        return None
    try:
        document = json.loads(text)
    except ValueError:
        return None
    return document if isinstance(document, dict) else None
