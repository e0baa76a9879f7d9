"""Small packages for builds: wheels, indexes of them, and sources whose build runs code."""

import hashlib
import io
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_PROJECT: Final = """\
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""
# A backend of its own, for a build must not need anything from an index.
_BACKEND: Final = """\
import os, pathlib, zipfile

NAME, VERSION = {name!r}, {version!r}
scratch = pathlib.Path(os.environ["HOME"])
attempt = pathlib.Path(str(scratch).removesuffix(".tmp"))
data = next(path for path in attempt.parents if path.name == "environments").parent
files = {{}}

def quietly(act):
    try:
        act()
    except OSError:
        pass

def get_requires_for_build_wheel(config_settings=None):
    return []

def build_wheel(folder, config_settings=None, metadata_directory=None):
    {code}
    info = f"{{NAME}}-{{VERSION}}.dist-info"
    files.setdefault(f"{{NAME}}.py", f"version = {{VERSION!r}}\\n")
    files[f"{{info}}/METADATA"] = (
        f"Metadata-Version: 2.1\\nName: {{NAME}}\\nVersion: {{VERSION}}\\n"
    )
    files[f"{{info}}/WHEEL"] = (
        "Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
    )
    files[f"{{info}}/RECORD"] = "".join(f"{{path}},,\\n" for path in files)
    wheel = f"{{NAME}}-{{VERSION}}-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(folder, wheel), "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return wheel
"""


def make_wheel(
    folder: Path,
    name: str,
    version: str,
    more: Mapping[str, str] | None = None,
    *,
    requires: str = "",
) -> Path:
    """A wheel with one module that knows its version. `requires` is a requirement of it."""
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": f"version = {version!r}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        + (f"Requires-Dist: {requires}\n" if requires else ""),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\n"
        "Tag: py3-none-any\n",
        **(more or {}),
    }
    record = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for member, text in {**files, f"{info}/RECORD": record}.items():
            wheel.writestr(member, text)
    return path


def make_source(folder: Path, name: str, version: str, code: str = "") -> Path:
    """A source archive whose build runs `code`, statements with the names of `_BACKEND`."""
    backend = _BACKEND.format(
        name=name, version=version, code="\n    ".join((code or "pass").splitlines())
    )
    files = {
        "pyproject.toml": f'{_PROJECT}[project]\nname = "{name}"\nversion = "{version}"\n',
        "backend.py": backend,
        "PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
    }
    path = folder / f"{name}-{version}.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for member, text in files.items():
            entry = tarfile.TarInfo(f"{name}-{version}/{member}")
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    return path


def add_to_index(index: Path, wheel: Path, *, digest: str | None = None) -> None:
    """Put a wheel into an index that is a folder; `digest` is what the index states of it."""
    page = index / wheel.name.partition("-")[0]
    page.mkdir(parents=True, exist_ok=True)
    content = wheel.read_bytes()
    (page / wheel.name).write_bytes(content)
    stated = digest or hashlib.sha256(content).hexdigest()
    (page / "index.html").write_text(f'<a href="{wheel.name}#sha256={stated}">{wheel.name}</a>')
