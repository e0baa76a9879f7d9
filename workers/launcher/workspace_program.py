"""Lists, reads and changes the files of one folder, for the agent.

User code owns the folder and may change it meanwhile. So each part of a path is opened from the
folder above it and follows no link, only regular files are opened, and nothing outside the folder
can be named. The agent runs this inside the boundary of the node's isolation level all the same,
as the project's user, with this folder and nothing else; a move between the shared and the personal
folder has both. It can reach no secret and no network.

It reads one request as a line of JSON (`slipway.schemas.workspace_files.FileRequest`), for `write`
followed by the bytes of the file. It writes one line (`FileAnswer`), for `read` followed by the
bytes of the file or of a zip. The exit status is 0 when all of them were written.
Standard library only.
"""

import ctypes
import errno
import json
import os
import secrets
import stat
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, BinaryIO, Final

from workers.launcher.disk import DiskMeter
from workers.launcher.removal import remove_entry
from workers.launcher.workspace_archive import write_archive
from workers.launcher.workspace_copy import FileError, TreeCopy

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Does not block on a named pipe that user code may have created.
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_BLOCK: Final = 1 << 20
_MOST_READ_ENTRIES: Final = 200_000
_MOST_MEASURED_STEPS: Final = 20_000
_NO_REPLACE: Final = 1
_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_PART: Final = ".slipway-part-"
_MESSAGES: Final = {
    errno.ENOENT: ("not_found", "There is no such file or folder in the workspace."),
    errno.ENOTDIR: ("not_found", "There is no such folder in the workspace."),
    errno.ELOOP: ("is_link", "This is a link, and the portal follows none."),
    errno.EEXIST: ("exists", "There is already a file or folder of this name."),
    errno.ENOTEMPTY: ("exists", "There is already a folder of this name."),
    errno.EACCES: ("denied", "The permissions of the file or folder do not allow this."),
    errno.EPERM: ("denied", "The permissions of the file or folder do not allow this."),
    errno.EINVAL: ("invalid", "A folder cannot be moved into itself."),
    errno.ENOSPC: ("disk_full", "The disk of the node is full."),
    errno.EDQUOT: ("disk_full", "The disk quota of the project is used up."),
    errno.ENAMETOOLONG: ("invalid", "The name is too long for the disk of the node."),
    errno.EILSEQ: ("invalid", "The disk of the node does not allow this name."),
    errno.EROFS: ("denied", "The disk of the node is read-only."),
    errno.EISDIR: ("is_folder", "This is a folder."),
}


def path_parts(text: str) -> list[bytes]:
    """Return the names of a path as bytes. Raises FileError for a path that leads elsewhere."""
    parts = [_name_bytes(part) for part in text.split("/")] if text else []
    if any(part in (b"", b".", b"..") or b"\0" in part or b"/" in part for part in parts):
        raise FileError("invalid", "This is no path below the folder.")
    return parts


def _name_bytes(text: str) -> bytes:
    """Return a name as on the disk. U+F780 to U+F7FF are bytes that are not UTF-8."""
    raw = "".join(chr(ord(c) - 0xF700 + 0xDC00) if 0xF780 <= ord(c) < 0xF800 else c for c in text)
    return raw.encode("utf-8", "surrogateescape")


def name_text(raw: bytes) -> str:
    """Return a name as text that can be sent, the inverse of `_name_bytes`."""
    text = raw.decode("utf-8", "surrogateescape")
    return "".join(chr(ord(c) - 0xDC00 + 0xF700) if "\udc80" <= c <= "\udcff" else c for c in text)


@contextmanager
def open_folder(root: int, parts: list[bytes], *, create: bool = False) -> Iterator[int]:
    """Yield a descriptor of a folder below `root`. Raises OSError, also for a link on the way.

    `create` creates the folders that are missing.
    """
    descriptor = os.dup(root)
    try:
        for part in parts:
            if create:
                with suppress(FileExistsError):  # a link, too, which is not opened then
                    os.mkdir(part, 0o777, dir_fd=descriptor)
            below = os.open(part, _FOLDER, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = below
        yield descriptor
    finally:
        os.close(descriptor)


def kind_of(status: os.stat_result) -> str:
    """Return the kind of an entry, as `EntryKind`."""
    if stat.S_ISDIR(status.st_mode):
        return "folder"
    if stat.S_ISREG(status.st_mode):
        return "file"
    return "link" if stat.S_ISLNK(status.st_mode) else "special"


def _list(root: int, request: dict[str, Any]) -> dict[str, Any]:
    rows: list[tuple[str, str, int, float]] = []
    is_cut = False
    search = request["search"].casefold()
    with open_folder(root, path_parts(request["path"])) as folder, os.scandir(folder) as entries:
        for count, entry in enumerate(entries):
            if count >= _MOST_READ_ENTRIES:
                is_cut = True
                break
            name = name_text(os.fsencode(entry.name))
            is_hidden = name.startswith(".") and not request["hidden"]
            if is_hidden or name.startswith(_PART) or (search and search not in name.casefold()):
                continue
            with suppress(OSError):  # removed meanwhile
                status = entry.stat(follow_symlinks=False)
                kind = kind_of(status)
                size = status.st_size if kind == "file" else 0
                rows.append((name, kind, size, status.st_mtime))
    order = request["order"]
    key = {
        "name": lambda row: (row[0].casefold(), row[0]),
        "size": lambda row: (row[2], row[0]),
        "modified": lambda row: (row[3], row[0]),
    }[order.lstrip("-")]
    rows.sort(key=key, reverse=order.startswith("-"))
    rows.sort(key=lambda row: row[1] != "folder")
    first = request["offset"]
    shown = [
        {"name": name, "kind": kind, "size_bytes": size, "modified": modified}
        for name, kind, size, modified in rows[first : first + request["limit"]]
    ]
    return {"ok": True, "entries": shown, "total": len(rows), "is_cut": is_cut}


def _read(root: int, request: dict[str, Any], output: BinaryIO) -> None:
    """Send a file, or a folder as a zip."""
    parts = path_parts(request["path"])
    if parts:
        with open_folder(root, parts[:-1]) as parent:
            status = os.stat(parts[-1], dir_fd=parent, follow_symlinks=False)
            kind = kind_of(status)
            if kind == "file":
                _send_file(parent, parts[-1], request["limit_bytes"], output)
                return
        if kind == "special":
            raise FileError("special", "This is a pipe, socket or device, not a file.")
        if kind == "link":
            raise FileError("is_link", "This is a link, and the portal follows none.")
    with open_folder(root, parts) as folder:
        _write_answer(output, {"ok": True, "kind": "folder"})
        write_archive(folder, output, hidden=request["hidden"], limit_bytes=request["limit_bytes"])


def _send_file(parent: int, name: bytes, limit_bytes: int, output: BinaryIO) -> None:
    descriptor = os.open(name, _FILE, dir_fd=parent)
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise FileError("special", "This is a pipe, socket or device, not a file.")
        if status.st_size > limit_bytes:
            raise FileError("too_large", f"The file has {status.st_size} bytes.")
        left = status.st_size
        _write_answer(output, {"ok": True, "kind": "file", "size_bytes": left})
        while left:
            block = file.read(min(left, _BLOCK))
            if not block:
                raise EOFError("the file became shorter while it was read")
            output.write(block)
            left -= len(block)


def _write(root: int, request: dict[str, Any], content: BinaryIO) -> dict[str, Any]:
    """Replace or create a file as a whole."""
    *folders, name = path_parts(request["path"])
    with open_folder(root, folders, create=request["parents"]) as parent:
        _require_writable(parent, name, replace=request["replace"])
        _require_space(parent, request, request["root"], request["size_bytes"])
        part = f"{_PART}{secrets.token_hex(8)}".encode()
        try:
            with os.fdopen(os.open(part, _NEW_FILE, 0o666, dir_fd=parent), "wb") as file:
                left = request["size_bytes"]
                while left:
                    block = content.read(min(left, _BLOCK))
                    if not block:
                        raise FileError("cut_off", "The upload ended too early.")
                    file.write(block)
                    left -= len(block)
            _rename(parent, part, parent, name, replace=request["replace"])
        except BaseException:
            with suppress(OSError):
                os.unlink(part, dir_fd=parent)
            raise
        return _entry(parent, name)


def _require_writable(parent: int, name: bytes, *, replace: bool) -> None:
    try:
        kind = kind_of(os.stat(name, dir_fd=parent, follow_symlinks=False))
    except FileNotFoundError:
        return
    if kind == "folder":
        raise FileError("exists", "There is already a folder of this name.")
    if kind != "file":
        raise FileError("exists", "There is already a link or device of this name.")
    if not replace:
        raise FileError("exists", "There is already a file of this name.")


def _require_space(parent: int, request: dict[str, Any], root: str, size: int) -> int:
    """Return the bytes that may be added to the folder `root`.

    Raises FileError if `size` would use up the disk, or the folder's share of it.
    """
    disk = os.fstatvfs(parent)
    free: int = disk.f_bavail * disk.f_frsize - request["reserve_bytes"]
    if free < size:
        raise FileError("disk_full", "The disk of the node would be full with this file.")
    left: int = request["folder_limit_bytes"] - _measure(root)
    if left < size:
        limit_gib = request["folder_limit_bytes"] / 1024**3
        raise FileError(
            "folder_full",
            f"The workspace would have more than {limit_gib:.1f} GiB, the limit of this node.",
        )
    return min(free, left)


def _measure(path: str) -> int:
    """Return the bytes that the files below a folder use on the disk."""
    meter = DiskMeter(own=[path])
    for step, _ in enumerate(meter.measure_own()):
        if step >= _MOST_MEASURED_STEPS:
            break
    return meter.result.own_bytes


def _make_folder(root: int, request: dict[str, Any]) -> dict[str, Any]:
    *folders, name = path_parts(request["path"])
    with open_folder(root, folders, create=request["parents"]) as parent:
        try:
            os.mkdir(name, 0o777, dir_fd=parent)
        except FileExistsError:
            kind = kind_of(os.stat(name, dir_fd=parent, follow_symlinks=False))
            if kind != "folder" or not request["parents"]:
                raise
        return _entry(parent, name)


def _move(root: int, request: dict[str, Any]) -> dict[str, Any]:
    """Rename an entry, also into the other area, which may be another mount."""
    *folders, name = path_parts(request["path"])
    *target_folders, target = path_parts(request["target"])
    with ExitStack() as stack:
        target_root = root
        if request["target_root"]:
            target_root = _open_root(request["target_root"])
            stack.callback(os.close, target_root)
        source = stack.enter_context(open_folder(root, folders))
        place = stack.enter_context(open_folder(target_root, target_folders))
        if request["replace"] and _exists(place, target):
            _require_writable(place, target, replace=True)
            if kind_of(os.stat(name, dir_fd=source, follow_symlinks=False)) != "file":
                raise FileError("exists", "Only a file can replace a file.")
        if request["target_root"]:
            size = _entry_bytes(source, name)
            limit = _require_space(place, request, request["target_root"], size)
        else:
            limit = request["folder_limit_bytes"]
        try:
            _rename(source, name, place, target, replace=request["replace"])
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            _move_by_copy(source, name, place, target, request["replace"], limit)
        return _entry(place, target)


def _entry_bytes(parent: int, name: bytes) -> int:
    """Return the space that an entry uses on the disk. Raises OSError."""
    status = os.stat(name, dir_fd=parent, follow_symlinks=False)
    if not stat.S_ISDIR(status.st_mode):
        return status.st_size
    # The meter opens the last part of the path without following a link.
    return _measure(f"/proc/self/fd/{parent}/{os.fsdecode(name)}")


def _move_by_copy(
    source: int, name: bytes, place: int, target: bytes, replace: bool, limit_bytes: int
) -> None:
    """Copy an entry, give the copy its name, and delete the original. Raises FileError, OSError."""
    part = f"{_PART}{secrets.token_hex(8)}".encode()
    try:
        identity = TreeCopy(limit_bytes).copy(source, name, place, part)
        _rename(place, part, place, target, replace=replace)
    except BaseException:
        with suppress(OSError):
            remove_entry(part, place)
        raise
    # Entries that user code has put there meanwhile have not been copied, so they remain.
    status = os.stat(name, dir_fd=source, follow_symlinks=False)
    try:
        if (status.st_dev, status.st_ino) == identity:
            remove_entry(name, source)
    except OSError:
        raise FileError(
            "denied", "It is copied, but the original could not be deleted completely."
        ) from None


def _rename(source: int, name: bytes, place: int, target: bytes, *, replace: bool) -> None:
    """Rename an entry. Raises OSError."""
    if replace:
        os.rename(name, target, src_dir_fd=source, dst_dir_fd=place)
    else:
        _rename_new(source, name, place, target)


def _rename_new(source: int, name: bytes, place: int, target: bytes) -> None:
    """Rename without replacing anything. Raises OSError."""
    if _LIBC.renameat2(source, name, place, target, _NO_REPLACE) == 0:
        return
    number = ctypes.get_errno()
    if number not in (errno.ENOSYS, errno.EINVAL) or _exists(place, target):
        raise OSError(errno.EEXIST if _exists(place, target) else number, os.strerror(number))
    # A file system without that flag, or a folder that would be moved into itself.
    os.rename(name, target, src_dir_fd=source, dst_dir_fd=place)


def _exists(place: int, name: bytes) -> bool:
    try:
        os.stat(name, dir_fd=place, follow_symlinks=False)
    except OSError:
        return False
    return True


def _delete(root: int, request: dict[str, Any]) -> dict[str, Any]:
    *folders, name = path_parts(request["path"])
    with open_folder(root, folders) as parent:
        remove_entry(name, parent)
    return {"ok": True}


def _entry(parent: int, name: bytes) -> dict[str, Any]:
    status = os.stat(name, dir_fd=parent, follow_symlinks=False)
    kind = kind_of(status)
    entry = {
        "name": name_text(name),
        "kind": kind,
        "size_bytes": status.st_size if kind == "file" else 0,
        "modified": status.st_mtime,
    }
    return {"ok": True, "entries": [entry], "total": 1}


def _write_answer(output: BinaryIO, answer: dict[str, Any]) -> None:
    output.write(json.dumps(answer).encode() + b"\n")
    output.flush()


_CHANGES: Final = {"mkdir": _make_folder, "move": _move, "delete": _delete, "list": _list}


def _open_root(folder: str) -> int:
    try:
        return os.open(folder, _FOLDER)
    except OSError:
        raise FileError(
            "no_workspace", "No notebook server of yours has created this folder on the node yet."
        ) from None


def serve(folder: str, source: BinaryIO, output: BinaryIO, target_folder: str = "") -> int:
    """Serve one request and return the exit status. `target_folder` is the other area of a move."""
    request = json.loads(source.readline())
    request |= {"root": folder, "target_root": target_folder}
    try:
        root = _open_root(folder)
        operation = request["operation"]
        if operation == "read":
            _read(root, request, output)
        elif operation == "write":
            _write_answer(output, _write(root, request, source))
        else:
            if operation != "list" and not request["path"]:
                raise FileError("invalid", "The folder itself cannot be changed.")
            _write_answer(output, _CHANGES[operation](root, request))
    except FileError as error:
        _write_answer(output, {"ok": False, "code": error.code, "detail": str(error)})
    except OSError as error:
        code, detail = _MESSAGES.get(error.errno or 0, ("failed", os.strerror(error.errno or 0)))
        _write_answer(output, {"ok": False, "code": code, "detail": detail})
    output.flush()
    return 0


def main() -> None:
    """Serve one request about the folder that the second argument names.

    A third one is the folder to which an entry is moved.
    """
    os.umask(0o077)
    sys.exit(serve(sys.argv[2], sys.stdin.buffer, sys.stdout.buffer, *sys.argv[3:4]))
