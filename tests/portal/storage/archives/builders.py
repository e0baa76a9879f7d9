"""Archives for the tests: honest ones from a tree, and hostile ones byte by byte."""

import io
import stat
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Tree = Mapping[str, bytes | None]
Build = Callable[[Tree], bytes]


def tar_of(
    members: list[tuple[tarfile.TarInfo, bytes]], *, mode: str = "w", **options: Any
) -> bytes:
    """Return a tar archive of headers as they are."""
    out = io.BytesIO()
    write: Any = tarfile.open
    with write(fileobj=out, mode=mode, **options) as archive:
        for info, content in members:
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def tar_member(name: str, content: bytes = b"", **fields: Any) -> tuple[tarfile.TarInfo, bytes]:
    """Return one header; `facts` are attributes of TarInfo."""
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for key, value in fields.items():
        setattr(info, key, value)
    return info, content


def _tar_members(tree: Tree) -> list[tuple[tarfile.TarInfo, bytes]]:
    return [
        tar_member(path, type=tarfile.DIRTYPE, mode=0o755)
        if content is None
        else tar_member(path, content)
        for path, content in tree.items()
    ]


def ustar(tree: Tree) -> bytes:
    return tar_of(_tar_members(tree), format=tarfile.USTAR_FORMAT)


def gnu(tree: Tree) -> bytes:
    return tar_of(_tar_members(tree), format=tarfile.GNU_FORMAT)


def pax(tree: Tree) -> bytes:
    return tar_of(_tar_members(tree), format=tarfile.PAX_FORMAT)


def tar_gz(tree: Tree) -> bytes:
    return tar_of(_tar_members(tree), mode="w:gz", format=tarfile.PAX_FORMAT)


def zip_of(members: list[tuple[zipfile.ZipInfo, bytes]], compression: int = 8) -> bytes:
    """Return a zip archive of headers as they are."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as archive:
        for info, content in members:
            archive.writestr(info, content, compress_type=compression)
    return out.getvalue()


def zip_member(name: str, content: bytes = b"", *, mode: int = 0) -> tuple[zipfile.ZipInfo, bytes]:
    """Return one header; `mode` is the Unix mode with its kind."""
    info = zipfile.ZipInfo("placeholder")
    info.filename = name
    info.external_attr = mode << 16
    return info, content


def zipped(tree: Tree) -> bytes:
    return zip_of(
        [
            zip_member(f"{path}/", mode=stat.S_IFDIR | 0o755)
            if content is None
            else zip_member(path, content, mode=stat.S_IFREG | 0o644)
            for path, content in tree.items()
        ]
    )


BUILDERS: dict[str, Build] = {
    "ustar": ustar,
    "gnu": gnu,
    "pax": pax,
    "tar.gz": tar_gz,
    "zip": zipped,
}


def tree_in(folder: Path) -> Tree:
    """Return what lies below a folder: contents of files, None for folders."""
    return {
        path.relative_to(folder).as_posix(): None if path.is_dir() else path.read_bytes()
        for path in sorted(folder.rglob("*"))
    }


def with_parents(tree: Tree) -> Tree:
    """Return the tree with the folders its files stand in."""
    folders: dict[str, bytes | None] = {}
    for path in tree:
        folders |= {parent.as_posix(): None for parent in Path(path).parents if parent.name}
    return folders | dict(tree)
