"""A program for tests: supervise what a JSON file lists.

`[{"name", "argv", "pid_file", "grace_s", "serves_others", …}]`; a process is ready when `pid_file`
holds the number of a process that runs.
"""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from portal.config.supervision.console import Console, RotatingFile
from portal.config.supervision.errors import StartError
from portal.config.supervision.probes import Probe
from portal.config.supervision.supervisor import NAME, ProcessSpec, Supervisor


def _ready_by(pid_file: Path) -> Probe:
    def is_ready() -> bool:
        try:
            os.kill(int(pid_file.read_text()), 0)
        except (OSError, ValueError):
            return False
        return True

    async def probe() -> str:
        return "" if is_ready() else "no process yet"

    return probe


def _spec(given: dict[str, Any]) -> ProcessSpec:
    return ProcessSpec(
        name=given["name"],
        argv=tuple(given["argv"]),
        ready=_ready_by(Path(given["pid_file"])),
        alive=_ready_by(Path(given["pid_file"])),
        env=dict(os.environ),
        stop_grace_s=given.get("grace_s", 3.0),
        serves_others=given.get("serves_others", False),
        uses_others=given.get("uses_others", False),
        optional=given.get("optional", False),
        clear_up=tuple(given.get("clear_up", ())),
    )


def main() -> int:
    """Supervise until told to stop."""
    folder = Path(sys.argv[1])
    specs = [_spec(given) for given in json.loads((folder / "specs.json").read_text())]
    console = Console(
        sys.stdout, RotatingFile(folder / "all.log"), [NAME, *(spec.name for spec in specs)]
    )
    supervisor = Supervisor(specs, console=console, cwd=folder)
    try:
        asyncio.run(supervisor.run(lambda: console.line(NAME, "all ready")))
    except StartError as error:
        console.line(NAME, str(error))
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
