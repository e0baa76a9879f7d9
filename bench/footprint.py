"""Footprint of Slipway: install size, memory and CPU time of each process, and start times.

    .venv/bin/python bench/footprint.py [--json] [--idle-seconds 30]
        [--without node gateway notebooks tracking]

Starts the same processes as `make up`, in an empty temporary folder. Memory is RSS (shared pages
counted in every process) and PSS (each shared page counted once), after a hundred page views and
with the agent's warm processes started. `idle` is the CPU time of all processes without requests.
If DATABASE_URL names a PostgreSQL server on this machine, its CPU time is `idle_database`.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Collection
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "platform"), str(ROOT)]

from bench.needs import require, require_folder  # noqa: E402  (the path comes first)

require()

import httpx  # noqa: E402

from tests.processes import (  # noqa: E402
    Installation,
    Program,
    children_of,
    command_of,
    installation,
    wait_for,
)

# Part of each process's command line that no other process has.
MARKS = {
    "supervisor": "manage.py up",
    "guard": "guard.py",
    "redis": "redis-server",
    "control": "workers.control",
    "portal": "manage.py portal",
    "tracking": "workers.tracking",
    "shipper": "workers.gateway.shipper",
    "gateway": "-m workers.gateway --",
    "proxy": "notebooks_service/proxy.mjs",
    "hub": "-m notebooks_service",
    "agent": "workers.node_agent",
    "warm": "workers.launcher.warm",
}
WARM = 2
# Processes of each part that can be embedded or run elsewhere.
PARTS = {
    "node": {"agent", "warm"},
    "gateway": {"gateway", "shipper"},
    "notebooks": {"hub", "proxy"},
    "tracking": {"tracking"},
}
RESTARTED = ("redis", "control", "portal", "tracking", "gateway", "hub", "agent")
MIB = 1024 * 1024
Cases = dict[str, tuple[float, str]]


def folder_mib(path: Path) -> float:
    """Return the disk usage of a folder, without following links."""
    sizes = (os.lstat(file).st_blocks * 512 for file in path.rglob("*"))
    return sum(sizes) / MIB


def memory_mib(pid: int) -> dict[str, float]:
    """Return RSS and PSS of a process."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    sizes = {line.split()[0].rstrip(":"): line.split()[1] for line in rollup[1:]}
    return {name: int(sizes[name.title()]) / 1024 for name in ("rss", "pss")}


def descendants(pid: int) -> list[int]:
    """Return a process and all its descendants."""
    return [pid, *(descendant for child in children_of(pid) for descendant in descendants(child))]


def named(program: Program, name: str) -> list[int]:
    """Return the processes of that name. There may be several, such as warm ones, or none."""
    return [pid for pid in descendants(program.pid) if MARKS[name] in command_of(pid)]


def processes(without: Collection[str]) -> list[str]:
    """Return the names of the processes of an installation without some parts."""
    left_out = set[str]().union(*(PARTS[part] for part in without))
    return [name for name in MARKS if name not in left_out]


def start(site: Installation, without: Collection[str]) -> tuple[Program, float]:
    """Start Slipway. Returns the program and the seconds until it was ready."""
    embedded = {
        f"SLIPWAY_EMBEDDED_{part.upper()}": "false" if part in without else "true" for part in PARTS
    }
    started = time.monotonic()
    program = site.start("manage.py", "up", "--no-input", **embedded)
    program.wait_for_text("Slipway is ready", within_s=120)
    return program, time.monotonic() - started


def stop(program: Program) -> float:
    """Stop Slipway as Ctrl-C does. Returns the seconds until it has ended."""
    started = time.monotonic()
    program.signal(signal.SIGINT)
    program.wait()
    return time.monotonic() - started


def measure_memory(site: Installation, program: Program, without: Collection[str]) -> Cases:
    """Measure every process after it has done some work."""
    with httpx.Client() as browser:
        for _ in range(100):
            browser.get(f"http://localhost:{site.portal_port}/account/login")
    if "node" not in without:
        wait_for(
            lambda: program.text().count(" process is warm after") == WARM,
            "the agent's warm processes",
        )
    names = processes(without)
    cases: Cases = {}
    for kind in ("rss", "pss"):
        for name in names:
            mib = sum(memory_mib(pid)[kind] for pid in named(program, name))
            cases[f"{name}_{kind}"] = (mib, "MiB")
    cases["all_pss"] = (sum(cases[f"{name}_pss"][0] for name in names), "MiB")
    return cases


def _cpu_s(pids: list[int]) -> float:
    fields = (Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids)
    return sum(int(field[11]) + int(field[12]) for field in fields) / os.sysconf("SC_CLK_TCK")


def _postgres() -> list[int]:
    """Return the running processes of PostgreSQL."""
    names = Path("/proc").glob("[0-9]*/comm")
    return [int(name.parent.name) for name in names if name.read_text() == "postgres\n"]


def measure_idle(program: Program, idle_s: float) -> Cases:
    """Measure the CPU time of all processes without requests."""
    time.sleep(idle_s / 2)
    groups = {"": descendants(program.pid)}
    groups |= {f"_{name}": named(program, name) for name in ("portal", "control")}
    if os.environ.get("DATABASE_URL"):
        groups["_database"] = _postgres()
    before = {name: _cpu_s(pids) for name, pids in groups.items()}
    time.sleep(idle_s)
    return {
        f"idle{name}": ((_cpu_s(pids) - before[name]) * 1000 / idle_s, "ms of a core a second")
        for name, pids in groups.items()
    }


def measure_restarts(program: Program, without: Collection[str]) -> Cases:
    """Kill each child, and measure the time until it is restarted and ready."""
    cases: Cases = {}
    for name in [name for name in RESTARTED if name in processes(without)]:
        before, log_length = named(program, name), len(program.text())
        killed = time.monotonic()
        os.kill(before[0], signal.SIGKILL)
        wait_for(lambda name=name, before=before: named(program, name) not in ([], before), name)  # type: ignore[misc]
        cases[f"{name}_started_again"] = (time.monotonic() - killed, "s")
        program.wait_for_text(f"{name} ready again", after=log_length)
        cases[f"{name}_ready_again"] = (time.monotonic() - killed, "s")
    return cases


def measure(without: Collection[str], idle_s: float) -> Cases:
    """Run every case."""
    cases: Cases = {
        "venv": (folder_mib(ROOT / ".venv"), "MiB"),
        "node_modules": (folder_mib(ROOT / "node_modules"), "MiB"),
    }
    with tempfile.TemporaryDirectory() as folder, installation(Path(folder), empty=True) as site:
        program, took = start(site, without)
        cases["first_start"] = (took, "s")
        stop(program)
        program, took = start(site, without)
        cases["second_start"] = (took, "s")
        cases |= measure_memory(site, program, without)
        cases |= measure_idle(program, idle_s)
        cases |= measure_restarts(program, without)
        cases["stop"] = (stop(program), "s")
    return cases


def main() -> None:
    """Print a table, and with --json one line of JSON at the end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    parser.add_argument("--without", nargs="*", choices=list(PARTS), default=[])
    parser.add_argument("--idle-seconds", type=float, default=30.0)
    arguments = parser.parse_args()
    require_folder(ROOT / "node_modules", "make setup")
    cases = measure(arguments.without, arguments.idle_seconds)
    for name, (value, unit) in cases.items():
        print(f"{name:<24} {value:10.2f} {unit}")
    if arguments.json:
        figures = {
            name: {"ours": round(value, 3), "peer": None, "ratio": None, "unit": unit}
            for name, (value, unit) in cases.items()
        }
        print(json.dumps({"bench": "footprint", "cases": figures}))


if __name__ == "__main__":
    main()
