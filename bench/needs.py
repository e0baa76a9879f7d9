"""Check what a benchmark needs before its other imports.

If something is missing, the script ends with exit code 2 and one sentence that names it.
"""

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

# What the helpers in tests/ import.
DEVELOPMENT = ("django", "httpx", "psycopg", "pytest")
_MISSING = 2


def refuse(problem: str) -> NoReturn:
    """End the script with one sentence."""
    script = Path(sys.argv[0])
    print(f"{script.parent.name}/{script.name} {' '.join(problem.split())}", file=sys.stderr)
    raise SystemExit(_MISSING)


def require(packages: Sequence[str] = DEVELOPMENT) -> None:
    """End the script unless the packages are installed."""
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        script = Path(sys.argv[0])
        refuse(
            f"needs the development packages ({', '.join(missing)} missing): run `make setup-dev`, "
            f"then `.venv/bin/python {script.parent.name}/{script.name}`."
        )


def require_programs(programs: Mapping[str, str]) -> None:
    """End the script unless the programs are installed. The values are packages of Debian."""
    missing = {name: package for name, package in programs.items() if shutil.which(name) is None}
    if missing:
        packages = " ".join(sorted(set(missing.values())))
        refuse(f"needs {', '.join(missing)}: install it with `apt-get install {packages}`.")


def require_cores(numbers: set[int]) -> None:
    """End the script unless it may run on the processor cores with these numbers."""
    if missing := numbers - os.sched_getaffinity(0):
        listed = ", ".join(map(str, sorted(missing)))
        refuse(f"pins processes to cores, and core {listed} is not available to it.")


def require_folder(folder: Path, command: str) -> None:
    """End the script unless the folder exists, which the command creates."""
    if not folder.exists():
        refuse(f"needs {folder.name}: run `{command}`.")


def require_disk(folder: Path, gib: int) -> None:
    """End the script unless the file system of the folder has so much space."""
    free_gib = shutil.disk_usage(folder).free // 1024**3
    if free_gib < gib:
        refuse(f"needs {gib} GiB of disk in {folder}, which has {free_gib}; choose a smaller size.")
