"""Folders of this machine on their way to a workspace: what is sent, and what is left out."""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from slipway.errors import InvalidInput
from slipway.schemas.workspace_files import MAX_TRANSFER_BYTES, WorkspaceEntry, check_new_path


@dataclass(frozen=True)
class LeftOut:
    """A file or folder that was not uploaded. `path` is below the uploaded folder."""

    path: str
    reason: str


@dataclass
class FolderUpload:
    """The result of an upload of a folder."""

    uploaded: list[WorkspaceEntry] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)


@dataclass(frozen=True)
class LocalEntry:
    """A file, or a folder without files, with its path below the uploaded folder.

    With a `reason` it cannot be sent.
    """

    file: Path
    path: str
    is_folder: bool = False
    reason: str = ""


def entries_of(folder: Path, target: str, *, hidden: bool) -> Iterator[LocalEntry]:
    """Yield the files of a folder and its empty folders, in the order of their paths.

    `target` is the folder in the workspace, which counts towards the length of paths. No link is
    followed. Raises InvalidInput if the folder cannot be read.
    """
    if not folder.is_dir():
        raise InvalidInput(
            f"{folder} is no folder.",
            field="source",
            next_step="Name a folder of this machine. `slipway workspace put` uploads files.",
        )
    return _walk(folder, "", target, hidden=hidden)


def _walk(folder: Path, prefix: str, target: str, *, hidden: bool) -> Iterator[LocalEntry]:
    try:
        names = sorted(os.listdir(folder))  # noqa: PTH208 - names, not paths
    except OSError as error:
        yield LocalEntry(folder, prefix.rstrip("/"), reason=_reason(error))
        return
    if not names and prefix:
        yield LocalEntry(folder, prefix.rstrip("/"), is_folder=True)
    for name in names:
        file, path = folder / name, f"{prefix}{name}"
        reason = _refusal(file, name, f"{target}/{path}", hidden=hidden)
        if reason:
            yield LocalEntry(file, path, reason=reason)
        elif file.is_dir():
            yield from _walk(file, f"{path}/", target, hidden=hidden)
        else:
            yield LocalEntry(file, path)


def _refusal(file: Path, name: str, target: str, *, hidden: bool) -> str:
    """Return why a file or folder is left out, or ""."""
    if name.startswith(".") and not hidden:
        return "hidden: its name begins with a dot"
    try:
        check_new_path(target)
        status = file.lstat()
    except ValueError as error:
        return f"the path {error}"
    except OSError as error:
        return _reason(error)
    if stat.S_ISDIR(status.st_mode):
        return ""
    if not stat.S_ISREG(status.st_mode):
        return "a link" if stat.S_ISLNK(status.st_mode) else "no file"
    if status.st_size > MAX_TRANSFER_BYTES:
        return f"larger than {MAX_TRANSFER_BYTES // 1024**3} GiB"
    return "" if os.access(file, os.R_OK) else "it cannot be read"


def _reason(error: OSError) -> str:
    return f"it cannot be read ({error.strerror})"
