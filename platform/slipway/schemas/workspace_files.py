"""Wire schemas of the files of a workspace, as the portal shows them and as agents read them.

GET    projects/{project}/workspace-files            a folder: WorkspaceFolder
GET    projects/{project}/workspace-files/content    a file's bytes, or a folder as a zip
POST   projects/{project}/workspace-files/content    the new content of a file → WorkspaceEntry
PUT    projects/{project}/workspace-files/folders    WorkspaceFolderIn → WorkspaceEntry
PATCH  projects/{project}/workspace-files            WorkspaceMoveIn → WorkspaceEntry
DELETE projects/{project}/workspace-files            204

`area` is `shared` (the workspace of all members) or `personal` (the caller's own folder). A node
has a workspace of its own; `node` is its name, by default that of the newest notebook server.

Names are bytes on the disk. Those that are not UTF-8 are written with U+F780 to U+F7FF for the
bytes 0x80 to 0xFF, so that each can be named in a request.
"""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from slipway.schemas.base import (
    AnswerSchema,
    Number,
    RequestSchema,
    Truth,
    Whole,
    forbidden_character,
)

WorkspaceArea = Literal["shared", "personal"]
EntryKind = Literal["folder", "file", "link", "special"]
ListOrder = Literal["name", "-name", "size", "-size", "modified", "-modified"]
WorkspaceOperation = Literal["list", "read", "write", "mkdir", "move", "delete"]
MAX_NAME_BYTES = 255
MAX_PATH_BYTES = 4000
MAX_DEPTH = 64
MAX_TRANSFER_BYTES = 2 * 1024**3
MOST_LISTED = 500
_ESCAPES = range(0xF780, 0xF800)


def name_bytes(text: str) -> bytes:
    """Return the bytes of a name or path as they are on the disk."""
    raw = "".join(chr(ord(c) - 0xF700 + 0xDC00) if ord(c) in _ESCAPES else c for c in text)
    return raw.encode("utf-8", "surrogateescape")


def _is_whole(text: str) -> bool:
    return "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text)


def check_path(text: str) -> str:
    """Return a path below the folder, without slashes around it. Raises ValueError."""
    path = text.strip("/")
    if not _is_whole(path):
        raise ValueError("contains a NUL character or half a character")
    if len(name_bytes(path)) > MAX_PATH_BYTES:
        raise ValueError(f"is longer than {MAX_PATH_BYTES} bytes")
    parts = path.split("/") if path else []
    if len(parts) > MAX_DEPTH:
        raise ValueError(f"has more than {MAX_DEPTH} folders")
    for part in parts:
        if part in ("", ".", ".."):
            raise ValueError("must be a path below the folder, without empty parts, . and ..")
        if len(name_bytes(part)) > MAX_NAME_BYTES:
            raise ValueError(f"has a name of more than {MAX_NAME_BYTES} bytes")
    return path


def _check_entry_path(text: str) -> str:
    path = check_path(text)
    if not path:
        raise ValueError("names no file or folder")
    return path


def check_new_path(text: str) -> str:
    """Return the path of a file or folder that is to be created. Raises ValueError.

    Names that exist may hold anything. New ones hold nothing that a page or terminal could not
    show as it is.
    """
    path = _check_entry_path(text)
    bad = forbidden_character(path)
    if bad is not None:
        raise ValueError(f"holds the character U+{ord(bad):04X}, which is not allowed")
    if any(not part.strip() for part in path.split("/")):
        raise ValueError("has a name of white space alone")
    return path


FolderPath = Annotated[str, AfterValidator(check_path), Field(max_length=MAX_PATH_BYTES)]
EntryPath = Annotated[
    str, AfterValidator(_check_entry_path), Field(min_length=1, max_length=MAX_PATH_BYTES)
]

NewPath = Annotated[
    str, AfterValidator(check_new_path), Field(min_length=1, max_length=MAX_PATH_BYTES)
]


class WorkspaceEntry(AnswerSchema):
    """A file or folder. `size_bytes` is 0 for what is no file. Links are never followed."""

    name: str
    path: str
    kind: EntryKind
    size_bytes: int
    modified_at: datetime


class WorkspaceNode(AnswerSchema):
    """A node that has a workspace of the project.

    `reason` says why it cannot be reached now, and `away_since` is its last heartbeat then.
    `is_default` marks the one that is meant when none is named.
    """

    name: str
    is_reachable: bool
    reason: str = ""
    away_since: datetime | None = None
    is_default: bool = False


class WorkspaceFolder(AnswerSchema):
    """One folder: `entries` from `offset` on, of `total`.

    `is_cut` says that the folder has more entries than are read, so `total` is too low.
    """

    node: str
    area: WorkspaceArea
    path: str
    entries: list[WorkspaceEntry]
    total: int
    offset: int
    is_cut: bool
    nodes: list[WorkspaceNode]


class WorkspaceFolderIn(RequestSchema):
    """A folder to create. With `parents` it may exist, and missing folders above are created."""

    path: NewPath
    area: WorkspaceArea = "shared"
    node: Annotated[str, Field(max_length=48)] = ""
    parents: Truth = False


class WorkspaceMoveIn(RequestSchema):
    """A file or folder to rename or to move on its node.

    `target_area` is that of `target`, by default the same. With `replace` a file replaces an
    existing file; otherwise nothing is overwritten.
    """

    path: EntryPath
    target: NewPath
    area: WorkspaceArea = "shared"
    target_area: WorkspaceArea | None = None
    node: Annotated[str, Field(max_length=48)] = ""
    replace: Truth = False


class FileRequest(AnswerSchema):
    """An operation for an agent in a folder of its node. `folder` is a persistent key.

    The folder is `PROJECT/workspace` or `PROJECT/person-…`. `target` is that of a move, below
    `target_folder` if that is not empty. `parents` creates missing folders above what is written.
    """

    id: str
    folder: str
    operation: WorkspaceOperation
    path: str = ""
    target: str = ""
    target_folder: str = ""
    order: ListOrder = "name"
    search: str = ""
    hidden: bool = False
    offset: int = 0
    limit: int = MOST_LISTED
    size_bytes: int = 0
    limit_bytes: int = MAX_TRANSFER_BYTES
    replace: bool = False
    parents: bool = False


class FileEntry(AnswerSchema):
    """A file or folder, as an agent reports it. `modified` is Unix time in seconds."""

    name: Annotated[str, Field(max_length=MAX_PATH_BYTES)]
    kind: EntryKind
    size_bytes: Annotated[Whole, Field(ge=0, le=2**63 - 1)]
    modified: Number


class FileAnswer(AnswerSchema):
    """The answer to a request: `ok`, or `code` and `detail`. Bytes of a read follow separately.

    `size_bytes` is that of a file that is sent. A folder, as a zip, has none.
    """

    ok: Truth
    code: Annotated[str, Field(max_length=40)] = ""
    detail: Annotated[str, Field(max_length=500)] = ""
    entries: Annotated[list[FileEntry], Field(max_length=MOST_LISTED)] = []
    total: Annotated[Whole, Field(ge=0, le=2**53)] = 0
    is_cut: Truth = False
    kind: EntryKind = "file"
    size_bytes: Annotated[Whole, Field(ge=0, le=2**63 - 1)] | None = None


class FileReport(RequestSchema):
    """A report about a request: it is `streaming` its bytes, or has `ended`."""

    state: Literal["streaming", "ended"]
    answer: FileAnswer
