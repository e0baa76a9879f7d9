"""Packages of a conda environment: their canonical form, and the archives of exact ones."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

EXPLICIT: Final = "@EXPLICIT"
SPEC: Final = re.compile(
    r"(?:(?P<channel>\S+)::)?(?P<name>[A-Za-z0-9_][A-Za-z0-9_.-]*)"
    r"(?P<rest>(?:\s*[=<>!~][A-Za-z0-9_.*+!<>=~,|\s-]*|\s+[A-Za-z0-9_.*+!<>=~,|\s-]+)?)"
)
_MAX_VALUE: Final = 4096
_PYTHON = re.compile(r"\s*(?:==?|~=|>=)?\s*(3\.\d{1,2})(?![\d])")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_ARCHIVE = re.compile(r"([A-Za-z0-9_][A-Za-z0-9_.+-]*)-([^-/]+)-([^-/]+)\.(?:conda|tar\.bz2)")
_PYTHON_ARCHIVE = re.compile(r"/python-(3\.\d{1,2})\.[^/\s]*#sha256:")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_SUBDIR = re.compile(r"noarch|[a-z]+-[a-z0-9]+")


@dataclass(frozen=True)
class LockedArchive:
    """A package at an address, such as `https://…/noarch/six-1.16.0-pyh6c4a22f_0.tar.bz2`."""

    url: str
    sha256: str

    @property
    def parts(self) -> tuple[str, str, str]:
        """Name, version and build, which its file name has."""
        match = _ARCHIVE.fullmatch(self.file_name)
        return (match[1], match[2], match[3]) if match else ("", "", "")

    @property
    def file_name(self) -> str:
        """The name of the file."""
        return self.url.rpartition("/")[2]

    @property
    def subdir(self) -> str:
        """The folder of its channel: a platform, or `noarch`."""
        return self.url.split("/")[-2]

    @property
    def channel(self) -> str:
        """The address of its channel."""
        return self.url.rsplit("/", 2)[0]

    @property
    def line(self) -> str:
        """The line of an `@EXPLICIT` file."""
        return f"{self.url}#sha256:{self.sha256}"


@dataclass(frozen=True)
class CondaEnvironment:
    """Packages of an environment, as names with versions or as exact archives by platform.

    `channels` are addresses, the first one comes first. `variables` are those of its processes.
    """

    channels: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    archives: Mapping[str, tuple[LockedArchive, ...]] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """The number of packages that are named."""
        return len(self.packages) or max(map(len, self.archives.values()), default=0)

    @property
    def names(self) -> set[str]:
        """The names of the packages."""
        specs = (spec.rpartition("::")[2] for spec in self.packages)
        exact = {it.parts[0] for archives in self.archives.values() for it in archives}
        return {match[0] for spec in specs if (match := _NAME.match(spec))} | exact

    @property
    def python(self) -> str:
        """The minor version of Python that is named, empty if only a solver would tell it."""
        for spec in self.packages:
            match = SPEC.fullmatch(spec)
            if match and match["name"] == "python" and (version := _PYTHON.match(match["rest"])):
                return "" if ">" in match["rest"] else version[1]
        versions = {
            ".".join(archive.parts[1].split(".")[:2])
            for archives in self.archives.values()
            for archive in archives
            if archive.parts[0] == "python"
        }
        return versions.pop() if len(versions) == 1 else ""

    @property
    def text(self) -> str:
        """The canonical form, which `from_text` reads."""
        document = {
            "channels": [*self.channels],
            "packages": [*self.packages],
            "archives": {
                platform: [archive.line for archive in archives]
                for platform, archives in sorted(self.archives.items())
            },
            "variables": dict(sorted(self.variables.items())),
        }
        return json.dumps({key: value for key, value in document.items() if value}, indent=1)

    @classmethod
    def from_text(cls, text: str) -> "CondaEnvironment":
        """Return an environment from its canonical form. Raises ValueError."""
        document: dict[str, Any] = json.loads(text)
        return cls(
            tuple(document.get("channels", ())),
            tuple(document.get("packages", ())),
            {
                platform: tuple(map(archive_of, lines))
                for platform, lines in document.get("archives", {}).items()
            },
            document.get("variables", {}),
        )


def archive_of(line: str) -> LockedArchive:
    """Return the package of a line `URL#sha256:DIGEST`. Raises ValueError."""
    url, _, digest = line.strip().partition("#")
    digest = digest.removeprefix("sha256:")
    parts = urlsplit(url)
    folders = parts.path.split("/")
    if parts.scheme not in ("https", "http") or not parts.hostname:
        raise ValueError("it is not the address of a package")
    if parts.username is not None or parts.password is not None:
        raise ValueError("it contains a password, which everybody in the project could read")
    if parts.query or ".." in folders or "" in folders[1:] or "%" in parts.path:
        raise ValueError("its address has an unclear form")
    if (
        len(folders) < 3
        or not _ARCHIVE.fullmatch(folders[-1])
        or not _SUBDIR.fullmatch(folders[-2])
    ):
        raise ValueError("its address does not end with SUBDIR/NAME-VERSION-BUILD.conda")
    if not _SHA256.fullmatch(digest):
        raise ValueError("it has no sha256 digest")
    return LockedArchive(url, digest)


def locked_versions(locked: str) -> str:
    """Return exact packages as `NAME==VERSION`, one a line, without addresses and comments."""
    lines = []
    for line in locked.splitlines():
        if "://" in line:
            name, version, _ = archive_of(line).parts
            lines.append(f"{name}=={version}")
        elif line and not line.startswith(("#", "@")):
            lines.append(line)
    return "\n".join(lines)


def python_of_locked(locked: str) -> str:
    """Return the minor version of Python among exact packages, empty for none."""
    match = _PYTHON_ARCHIVE.search(locked)
    return match[1] if match else ""


def check_variables(variables: Mapping[str, str]) -> str:
    """Return the reason why variables cannot be set, or an empty text."""
    for name, value in variables.items():
        if not _VARIABLE.fullmatch(name):
            return f"{name[:40]!r} is not a valid variable name"
        if name.startswith("SLIPWAY_"):
            return f"{name[:40]} is reserved: names that begin with SLIPWAY_ belong to the platform"
        if len(value) > _MAX_VALUE:
            return f"the value of {name} is longer than {_MAX_VALUE} characters"
        if name in ("PATH", "HOME", "TMPDIR", "PYTHONHOME", "CONDA_PREFIX"):
            return f"{name} is set by the node"
    return ""
