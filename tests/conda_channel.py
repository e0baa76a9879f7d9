"""Real conda packages and a channel of them on loopback, because public channels are not reachable.

The package `python` is the interpreter of this machine with its standard library.
"""

import hashlib
import io
import json
import sys
import sysconfig
import tarfile
import threading
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa

SUBDIR = "linux-64" if "x86_64" in sysconfig.get_platform() else "linux-aarch64"
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
PLACEHOLDER = "/opt/" + "placehold_" * 20
_LEFT_OUT = {"test", "tests", "idlelib", "tkinter", "lib2to3", "ensurepip", "turtledemo"}
_LEFT_OUT |= {"dist-packages", "site-packages", "__pycache__", "pydoc_data"}
_SITE = """
import os, site, sys
folder = os.path.join(os.path.dirname(os.__file__), "site-packages")
if folder not in sys.path:
    site.addsitedir(folder)
"""


@dataclass(frozen=True)
class Package:
    """A package: its `files` are bytes by path, or the target of a link after `->`."""

    name: str
    version: str = "1.0"
    depends: Sequence[str] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    executables: Sequence[str] = ()
    noarch: bool = False
    build: str = "0"
    is_new_format: bool = True
    prefixed: Sequence[str] = ()
    # Files that only its list of files has.
    listed: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def subdir(self) -> str:
        """The folder of the channel that it is in."""
        return "noarch" if self.noarch else SUBDIR

    @property
    def file_name(self) -> str:
        """The name of its archive."""
        suffix = ".conda" if self.is_new_format else ".tar.bz2"
        return f"{self.name}-{self.version}-{self.build}{suffix}"

    @property
    def index(self) -> dict[str, Any]:
        """The content of `info/index.json`."""
        return {
            "name": self.name,
            "version": self.version,
            "build": self.build,
            "build_number": 0,
            "depends": [*self.depends],
            "subdir": self.subdir,
            **({"noarch": "python"} if self.noarch else {}),
        }

    def archive(self) -> bytes:
        """Return the bytes of its archive."""
        paths = [
            {
                "_path": path,
                "path_type": "hardlink",
                "sha256": hashlib.sha256(content).hexdigest(),
                "size_in_bytes": len(content),
                **(
                    {"file_mode": "text", "prefix_placeholder": PLACEHOLDER}
                    if path in self.prefixed
                    else {}
                ),
            }
            for path, content in {**self.files, **self.listed}.items()
        ]
        paths += [{"_path": path, "path_type": "softlink"} for path in self.links]
        info = {
            "info/index.json": json.dumps(self.index).encode(),
            "info/paths.json": json.dumps({"paths": paths, "paths_version": 1}).encode(),
            "info/about.json": b"{}",
        }
        if self.noarch:
            link = {"noarch": {"type": "python"}, "package_metadata_version": 1}
            info["info/link.json"] = json.dumps(link).encode()
        if not self.is_new_format:
            return _tar({**info, **self.files}, self.links, self.executables, "w:bz2")
        stem = self.file_name.removesuffix(".conda")
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
            archive.writestr("metadata.json", '{"conda_pkg_format_version": 2}')
            content = _tar(self.files, self.links, self.executables, "w")
            archive.writestr(f"pkg-{stem}.tar.zst", _compressed(content))
            archive.writestr(f"info-{stem}.tar.zst", _compressed(_tar(info, {}, (), "w")))
        return buffer.getvalue()


def _compressed(content: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(content)
    return bytes(sink.getvalue())


def _tar(
    files: Mapping[str, bytes], links: Mapping[str, str], executables: Sequence[str], mode: str
) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:  # type: ignore[call-overload]
        for path, content in files.items():
            member = tarfile.TarInfo(path)
            member.size = len(content)
            member.mode = 0o755 if path in executables else 0o644
            archive.addfile(member, io.BytesIO(content))
        for path, target in links.items():
            member = tarfile.TarInfo(path)
            member.type, member.linkname = tarfile.SYMTYPE, target
            archive.addfile(member)
    return buffer.getvalue()


@cache
def python_archive() -> bytes:
    """Return the archive of the interpreter."""
    return python_package().archive()


@cache
def python_package() -> Package:
    """Return the interpreter of this machine as a package. It is relocatable: it runs anywhere."""
    standard = Path(sysconfig.get_paths()["stdlib"])
    files: dict[str, bytes] = {}
    for path in sorted(standard.rglob("*")):
        inside = path.relative_to(standard)
        if path.is_dir() or _LEFT_OUT.intersection(inside.parts) or "config-" in inside.parts[0]:
            continue
        if inside.name not in ("sitecustomize.py", "EXTERNALLY-MANAGED"):
            files[f"lib/python{VERSION}/{inside}"] = path.read_bytes()
    # Debian has another layout, which no conda package has. Its site.py is compiled in.
    name = f"lib/python{VERSION}/sysconfig.py"
    text = files[name].decode()
    files[name] = text.replace("scheme = 'posix_local'", "scheme = 'posix_prefix'").encode()
    files[f"lib/python{VERSION}/sitecustomize.py"] = _SITE.encode()
    executable = f"bin/python{VERSION}"
    base = getattr(sys, "_base_executable", sys.executable)
    files[executable] = Path(base).resolve().read_bytes()
    full = ".".join(map(str, sys.version_info[:3]))
    return Package(
        "python",
        full,
        files=files,
        links={"bin/python": f"python{VERSION}", "bin/python3": f"python{VERSION}"},
        executables=[executable],
    )


@dataclass
class Channel:
    """A channel at an address. `requests` are the paths that were asked for."""

    folder: Path
    url: str
    requests: list[str]

    def add(self, *packages: Package, sha256: str = "") -> None:
        """Add packages, with a wrong digest if one is given."""
        for package in packages:
            self.add_archive(package, package.archive(), sha256=sha256)

    def add_archive(self, package: Package, content: bytes, *, sha256: str = "") -> None:
        """Add an archive with this content to the folder of the channel and its index."""
        folder = self.folder / package.subdir
        (folder / package.file_name).write_bytes(content)
        entry = {
            **package.index,
            "sha256": sha256 or hashlib.sha256(content).hexdigest(),
            "md5": hashlib.md5(content, usedforsecurity=False).hexdigest(),
            "size": len(content),
        }
        index = folder / "repodata.json"
        document = json.loads(index.read_text())
        section = "packages.conda" if package.is_new_format else "packages"
        document[section][package.file_name] = entry
        index.write_text(json.dumps(document))

    def address(self, package: Package) -> str:
        """Return the address of a package."""
        return f"{self.url}/{package.subdir}/{package.file_name}"

    def sha256(self, package: Package) -> str:
        """Return the digest of a package as it is in the channel."""
        path = self.folder / package.subdir / package.file_name
        return hashlib.sha256(path.read_bytes()).hexdigest()


class _Server(ThreadingHTTPServer):
    request_queue_size = 64
    daemon_threads = True


class _Handler(SimpleHTTPRequestHandler):
    def __init__(self, *args: Any, requests: list[str], **more: Any) -> None:
        self._requests = requests
        super().__init__(*args, **more)

    def do_GET(self) -> None:
        """Note the path and answer with the file."""
        self._requests.append(self.path)
        super().do_GET()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def running_channel(folder: Path) -> Iterator[Channel]:
    """Serve an empty channel from a folder."""
    for subdir in (SUBDIR, "noarch"):
        (folder / subdir).mkdir(parents=True)
        document = {"info": {"subdir": subdir}, "packages": {}, "packages.conda": {}}
        (folder / subdir / "repodata.json").write_text(json.dumps(document))
    requests: list[str] = []
    handler = partial(_Handler, directory=str(folder), requests=requests)
    with _Server(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield Channel(folder, f"http://127.0.0.1:{server.server_port}", requests)
        finally:
            server.shutdown()
