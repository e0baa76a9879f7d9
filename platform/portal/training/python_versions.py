"""The Python of a job: that of its request, or of the files nearest to its script."""

import posixpath
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from portal.compute.services.environments import default_python
from portal.compute.services.pythons import (
    SUPPORTED_PYTHONS,
    minor_of,
    no_such_python,
    offered_pythons,
)
from portal.core.errors import InvalidInput
from portal.training.project_folder import ProjectFolder
from slipway.requirement_files.names import PYTHON_VERSION, folders_of
from slipway.schemas.backends import BACKENDS

_PINNED = re.compile(r"(?:cpython-|python-)?(3\.\d{1,2})(?:\.\d+)?")
# Poetry's own forms of a range.
_CARET = re.compile(r"\^\s*(\d+)((?:\.\d+){0,2})")
_TILDE = re.compile(r"~\s*(\d+)\.(\d+)((?:\.\d+)?)(?![\d.])")
_MOST_PATCHES = 60
_SHOWN_CHARACTERS = 80


@dataclass(frozen=True)
class JobPython:
    """A minor version such as `3.12`, and the sentence that says where it comes from.

    `is_chosen` is True if the request or a file names it. `versions` is the range of the file.
    """

    version: str
    explanation: str = ""
    is_chosen: bool = False
    versions: SpecifierSet | None = None

    @property
    def is_usual(self) -> bool:
        """True for the version of the environment of the installation."""
        return self.version == default_python()

    def accepts(self, version: str) -> bool:
        """Return True if a named environment with this version may be used for the job.

        It is empty for one of conda, where only a solver would tell it.
        """
        if self.versions is not None:
            return bool(version) and _allows(self.versions, version)
        return not self.is_chosen or version == self.version


def python_of(
    *, requested: str | None, script: str, folder: ProjectFolder | None, backend: str
) -> JobPython:
    """Return the Python of a job.

    That of the request comes first, then the nearest `.python-version`, then `requires-python` of
    the nearest pyproject.toml: the usual version if that allows it, else the newest that nodes
    have. Containers have the Python of their image, the node's or a Dockerfile's. Raises
    InvalidInput for a version that no node has, and for any of a request if the job runs in a
    container.
    """
    has_own = BACKENDS[backend].uses_pythons
    if requested is not None:
        if not has_own:
            raise InvalidInput(
                f"A job in a container cannot choose its Python ({requested}).",
                code="python_in_container",
                field="python",
                next_step="Leave it out, which uses the Python of the image, bring a Dockerfile "
                "that begins with FROM python:VERSION, or run the job without a container "
                "(backend: process).",
            )
        return _checked(JobPython(requested, f"Python {requested} of the request.", is_chosen=True))
    if folder is None:
        return JobPython(default_python())
    for at in folders_of(script):
        for name, read in ((PYTHON_VERSION, _pinned), ("pyproject.toml", _in_range)):
            path = posixpath.join(at, name)
            if folder.has(path) and (python := read(path, folder.read(path) or "")):
                return _checked(python) if has_own else _in_container(path)
    return JobPython(default_python())


def _checked(python: JobPython) -> JobPython:
    """Return the version if a node has it, as far as nodes report them. Raises InvalidInput."""
    offered = offered_pythons()
    if python.is_chosen and python.version not in (offered or SUPPORTED_PYTHONS):
        raise no_such_python(python.version, offered, why=python.explanation)
    return python


def _in_container(path: str) -> JobPython:
    sentence = (
        f"{path} does not set the Python: a container has that of the node's image, or of a "
        "Dockerfile in the folder."
    )
    return JobPython(default_python(), sentence)


def _pinned(path: str, text: str) -> JobPython | None:
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    name = next(filter(None, lines), "")
    match = _PINNED.fullmatch(name)
    if match is None:
        sentence = f"{path} is not used: {name[:50]!r} is not a version of CPython such as 3.12."
        return JobPython(default_python(), sentence)
    return JobPython(match[1], f"Python {match[1]} from {path}.", is_chosen=True)


def _in_range(path: str, text: str) -> JobPython | None:
    """Return the version for the range of a pyproject.toml, None if it has none."""
    required = _required(text)
    if not required:
        return None
    shown = required[:_SHOWN_CHARACTERS]
    try:
        versions = SpecifierSet(_TILDE.sub(_tilde_range, _CARET.sub(_caret_range, required)))
    except InvalidSpecifier:
        sentence = f"The range of Python in {path} is not used: {shown!r} cannot be read."
        return JobPython(default_python(), sentence)
    if _allows(versions, default_python()):
        return JobPython(default_python(), versions=versions)
    offered = offered_pythons()
    usable = [version for version in offered or SUPPORTED_PYTHONS if _allows(versions, version)]
    if not usable:
        raise no_such_python(shown, offered, why=f"{path} requires Python {shown}.")
    newest = max(usable, key=minor_of)
    sentence = f"Python {newest}, because {path} requires {shown}."
    return JobPython(newest, sentence, is_chosen=True, versions=versions)


def _required(text: str) -> str:
    """Return the range of a pyproject.toml, empty if there is none that can be read."""
    try:
        document: dict[str, Any] = tomllib.loads(text)
        required = document.get("project", {}).get("requires-python")
        if required is None:
            poetry = document.get("tool", {}).get("poetry", {})
            required = poetry.get("dependencies", {}).get("python")
    except (tomllib.TOMLDecodeError, RecursionError, AttributeError):
        return ""  # packages_of reports a file that is not valid
    return required.strip() if isinstance(required, str) else ""


def _caret_range(match: re.Match[str]) -> str:
    return f">={match[1]}{match[2]},<{int(match[1]) + 1}"


def _tilde_range(match: re.Match[str]) -> str:
    return f">={match[1]}.{match[2]}{match[3]},<{match[1]}.{int(match[2]) + 1}"


def _allows(versions: SpecifierSet, minor: str) -> bool:
    patches: Sequence[str] = [f"{minor}.{patch}" for patch in range(_MOST_PATCHES)]
    return any(versions.contains(patch) for patch in patches)
