"""Base interpreters: which of them this node has, and which folders each of them needs.

Asked of the interpreters themselves, which an administrator installed. A virtual environment is
never asked: its `pyvenv.cfg` and its links may have been written by what was built in it.
"""

import asyncio
import contextlib
import json
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_NAME: Final = re.compile(r"python3\.\d+")
# The SDK and the launcher run in the interpreter of a task.
_OLDEST: Final = (3, 11)
# One that does not answer, such as one on a network drive, must not keep the node from joining.
_WITHIN_S: Final = 20.0
# Without `site`, so that no .pth file runs.
_DESCRIBE: Final = """\
import json, os, sys, sysconfig
paths = sysconfig.get_paths()
print(json.dumps({
    "version": "%d.%d" % sys.version_info[:2],
    "executable": getattr(sys, "_base_executable", None) or sys.executable,
    "places": [sys.base_prefix, sys.base_exec_prefix, paths["stdlib"], paths["platstdlib"]],
}))
"""


@dataclass(frozen=True)
class Interpreter:
    """A base interpreter: no virtual environment, but what they are made from."""

    executable: Path
    version: str
    places: tuple[str, ...]

    @property
    def is_of_agent(self) -> bool:
        """True for the minor version of the agent's own Python."""
        return self.version == f"{sys.version_info.major}.{sys.version_info.minor}"


async def describe_interpreter(python: str) -> Interpreter | None:
    """Describe the base interpreter of an interpreter that an administrator named, if it runs."""
    try:
        process = await asyncio.create_subprocess_exec(
            *(python, "-I", "-S", "-c", _DESCRIBE),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError:
        return None
    try:
        output, _ = await asyncio.wait_for(process.communicate(), _WITHIN_S)
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        return None
    try:
        answer = json.loads(output)
        executable = Path(answer["executable"])
        places = [*map(str, answer["places"]), _prefix_of(executable)]
        return Interpreter(executable, str(answer["version"]), _distinct(places))
    except (ValueError, KeyError, TypeError):
        return None


async def find_interpreters(own: str) -> dict[str, Interpreter]:
    """Find the base interpreters of this machine, by minor version such as `3.12`.

    `own` comes first, then the search path, pyenv and uv. Entries that do not run, such as pyenv's
    shims for versions that are not selected, are left out, and so are versions that the SDK does
    not support.
    """
    candidates = [own, *dict.fromkeys(map(str, _candidates()))]
    described = await asyncio.gather(*map(describe_interpreter, candidates))
    interpreters: dict[str, Interpreter] = {}
    for interpreter in filter(None, described):
        if _minor(interpreter.version) >= _OLDEST:
            interpreters.setdefault(interpreter.version, interpreter)
    return interpreters


def _candidates() -> Iterator[Path]:
    """Yield files that may be interpreters, those that are preferred first."""
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        if Path(folder).is_absolute():
            names = _matches(Path(folder), "python3.*")
            yield from sorted(path for path in names if _NAME.fullmatch(path.name))
    # Unlike Path.home(), this does not fail for a user without a home.
    home = Path(os.path.expanduser("~"))  # noqa: PTH111
    pyenv = Path(os.environ.get("PYENV_ROOT") or home / ".pyenv") / "versions"
    data = Path(os.environ.get("XDG_DATA_HOME") or home / ".local" / "share")
    uv = Path(os.environ.get("UV_PYTHON_INSTALL_DIR") or data / "uv" / "python")
    for versions, pattern in ((pyenv, "3.*"), (uv, "cpython-3.*")):
        # Of several patch releases the newest.
        yield from sorted(_matches(versions, f"{pattern}/bin/python3"), key=_release, reverse=True)


def _matches(folder: Path, pattern: str) -> list[Path]:
    """Return files below a folder. One that this user may not enter has none."""
    try:
        return list(folder.glob(pattern))
    except OSError:
        return []


def _release(python: Path) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", python.parts[-3])[:3]))


def _minor(version: str) -> tuple[int, int]:
    major, _, minor = version.partition(".")
    return int(major), int(minor)


def places_of_this_interpreter() -> tuple[str, ...]:
    """The folders that the agent's own interpreter needs, with the packages beside it."""
    places = [sys.prefix, sys.base_prefix, sys.base_exec_prefix, _prefix_of(Path(sys.executable))]
    return _distinct(places)


async def places_of_environment(python: Path) -> tuple[str, ...]:
    """The folders that an interpreter needs which an administrator gave to tasks."""
    base = await describe_interpreter(str(python))
    places = [str(python.parent.parent), *(base.places if base is not None else ())]
    return _distinct(places)


def _prefix_of(executable: Path) -> str:
    return str(Path(os.path.realpath(executable)).parent.parent)


def _distinct(places: list[str]) -> tuple[str, ...]:
    # Everything would be readable under the root.
    return tuple(dict.fromkeys(place for place in places if place not in ("", "/")))
