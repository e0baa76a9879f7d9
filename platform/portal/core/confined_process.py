"""Command lines of processes that read untrusted input: files, notebooks, tables.

Such a process runs our code, and a flaw in a library that parses hostile bytes must not expose the
installation. It sees the system, the platform's code and the folders it works in: in a sandbox of
namespaces where the machine permits one, else confined by Landlock where the kernel has it.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Final, Literal

import portal

_PLATFORM: Final = Path(portal.__path__[0]).parent
_ROOT: Final = _PLATFORM.parent
_ENTER: Final = (
    "import sys; sys.path.insert(0, sys.argv[1]); from workers.launcher.{} import main; main()"
)
_TRIAL_WITHIN_S: Final = 20.0
_MOST_ERROR_CHARACTERS: Final = 2_000


@dataclass(frozen=True)
class ConfinedResult:
    """The end of a confined process.

    `status` is as in `subprocess.CompletedProcess`. `output` is None if it is larger than allowed.
    `errors` is the end of its standard error.
    """

    status: int
    output: bytes | None
    errors: str


def run_confined(
    module: str, *arguments: str, source: IO[bytes], within_s: float, most_output_bytes: int
) -> ConfinedResult:
    """Run a module of ours on the bytes of a file, in an empty folder, and return what it wrote.

    It gets no variable of the portal, whose environment contains the secrets of the installation.
    Raises subprocess.TimeoutExpired after `within_s` seconds.
    """
    with tempfile.TemporaryFile() as output, tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            confined_command(module, *arguments, writable=[folder]),
            stdin=source,
            stdout=output,
            stderr=subprocess.PIPE,
            cwd=folder,
            env={
                "PYTHONPATH": str(_PLATFORM),
                "HOME": folder,
                "TMPDIR": folder,
                "LANG": "C.UTF-8",
            },
            timeout=within_s,
            check=False,
        )
        size = output.seek(0, os.SEEK_END)
        output.seek(0)
        return ConfinedResult(
            done.returncode,
            output.read() if size <= most_output_bytes else None,
            done.stderr.decode(errors="replace")[-_MOST_ERROR_CHARACTERS:],
        )


def confined_command(module: str, *arguments: str, writable: Sequence[Path | str]) -> list[str]:
    """Return the command line that runs a module of ours with access to these folders alone.

    The first of the writable ones is its working directory. The caller passes an environment
    without secrets, with PYTHONPATH naming the platform's code.
    """
    program = [sys.executable, "-P", "-m", module, *arguments]
    places = (_PLATFORM, _ROOT / "workers", sys.prefix, sys.base_prefix)
    return _confined(program, [str(path) for path in writable], [str(path) for path in places])


def _confined(program: list[str], writable: list[str], readable: list[str]) -> list[str]:
    if isolation_of_readers() == "namespaces":
        view = {"writable": writable, "readable": readable, "offline": True}
        identity = {"uid": os.getuid(), "gid": os.getgid()}
        return [*_enter("sandbox"), json.dumps(view | identity), *program]
    return [
        *_enter("confinement"),
        *(word for path in writable for word in ("-w", path)),
        *(word for path in readable for word in ("-r", path)),
        *("--", *program),
    ]


def _enter(module: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", _ENTER.format(module), str(_ROOT)]


@cache
def isolation_of_readers() -> Literal["namespaces", "landlock"]:
    """Return the isolation of these processes on this machine, determined once by a trial."""
    view = {"writable": [], "offline": True, "uid": os.getuid(), "gid": os.getgid()}
    trial = [*_enter("sandbox"), json.dumps(view), "/bin/sh", "-c", "exit 0"]
    try:
        done = subprocess.run(
            trial,
            env={},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TRIAL_WITHIN_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return "landlock"
    return "namespaces" if done.returncode == 0 else "landlock"
