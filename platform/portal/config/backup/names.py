"""Valid names of the members of a backup, and the format of its manifest."""

import re
from pathlib import PurePosixPath
from typing import Any, Final

from portal.config.backup.errors import BackupError
from portal.storage.ports import digest_in
from slipway.sanitize import visible

# Folders and files of the data folder that cannot be recreated. Bytes and artifacts are read from
# their stores, which may be elsewhere.
KEPT: Final = ("keys", "logs", "outbox", "predictions", "node/node.json", "node/name")
_TABLE: Final = re.compile(r"\Atables/(?:default|tracking)/\w{1,100}\.jsonl\.gz\Z", re.ASCII)
_ALIASES: Final = {"default", "tracking"}
_MAX_PART_BYTES: Final = 255


def check_name(name: str, sha256: str) -> None:
    """Raise BackupError for an unknown member, or one whose bytes do not match its name."""
    kind, _, rest = name.partition("/")
    if kind == "tables" and _TABLE.match(name):
        return
    if kind == "blobs":
        digest = digest_in(rest)
        if digest is None:
            raise _foreign(name)
        if digest != sha256:
            raise BackupError(f"{visible(name)} does not match the digest in its name")
        return
    if kind not in ("artifacts", "data") or not all(map(_is_part, rest.split("/"))):
        raise _foreign(name)
    if kind == "data" and not is_backed_up(PurePosixPath(rest)):
        raise _foreign(name)


def is_backed_up(path: PurePosixPath) -> bool:
    """Return True if backups include this path below the data folder."""
    return any(path.is_relative_to(kept) for kept in KEPT)


def _is_part(part: str) -> bool:
    return (
        part not in ("", ".", "..")
        and "\0" not in part
        and len(part.encode(errors="surrogateescape")) <= _MAX_PART_BYTES
    )


def _foreign(name: str) -> BackupError:
    return BackupError(f"the backup contains {visible(name[:200])}, which is not part of a backup")


def check_manifest(manifest: dict[str, Any]) -> None:
    """Raise ValueError unless everything in it has the type it must have."""
    texts = [manifest.get(name) for name in ("slipway", "made_at", "tracking_version")]
    numbers = [manifest.get(name) for name in ("members", "size_bytes")]
    lists = [manifest.get(name) for name in ("migrations", "missing")]
    databases = manifest.get("databases")
    if not (
        all(isinstance(text, str) for text in texts)
        and all(type(number) is int for number in numbers)
        and all(_is_texts(listed) for listed in lists)
        and isinstance(databases, dict)
        and databases.keys() == _ALIASES
        and all(_are_tables(tables) for tables in databases.values())
    ):
        raise ValueError("its manifest is not valid")


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _are_tables(tables: Any) -> bool:
    return isinstance(tables, dict) and all(
        isinstance(table, dict)
        and table.keys() == {"columns", "rows", "digest", "nano"}
        and _is_texts(table["columns"])
        and type(table["rows"]) is int
        and isinstance(table["digest"], str)
        and isinstance(table["nano"], dict)
        for table in tables.values()
    )
