"""Base interpreters: which of them this node has, and which folders each of them needs.

Asked of the interpreters themselves, which an administrator installed. A virtual environment is
never asked: its `pyvenv.cfg` and its links may have been written by what was built in it.
"""

import asyncio
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

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
    output, _ = await process.communicate()
    try:
        answer = json.loads(output)
        executable = Path(answer["executable"])
        places = [*map(str, answer["places"]), _prefix_of(executable)]
        return Interpreter(executable, str(answer["version"]), _distinct(places))
    except (ValueError, KeyError, TypeError):
        return None


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
