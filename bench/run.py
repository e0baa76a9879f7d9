"""Run the comparisons side by side, and write one table of them all.

    .venv/bin/python bench/run.py --list
    .venv/bin/python bench/run.py launch strategies      # these two, as thorough as they are
    .venv/bin/python bench/run.py --quick                # all that fit, small, within five minutes
    .venv/bin/python bench/run.py --repeat 3 --write     # all, three times, into bench/RESULTS.md

Each script runs by itself, one after the other, and compares inside one run; its figures are
medians over its own rounds. With `--repeat` the median of the repeats counts. Small runs show that
a comparison works and roughly how it stands; their figures are not for quoting, and --write refuses
them. The table goes to .cache/bench/, and with --write between the marks in bench/RESULTS.md.
"""

import argparse
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "RESULTS.md"
KEPT = ROOT / ".cache" / "bench"
BEGIN, END = "<!-- the table of bench/run.py -->", "<!-- its end -->"
QUICK_S = 285.0
# All scripts, the most informative first, with the arguments of a quick run (None: there is none).
SCRIPTS: dict[str, list[str] | None] = {
    "launch": ["--rounds", "1", "--steps", "300"],
    "strategies": ["ddp", "zero3", "--rounds", "2", "--seconds", "3"],
    "storage": ["--mib", "64"],
    "runs": ["--runs", "2000", "--rounds", "5"],
    "spend": ["--leases", "5000", "--running", "20", "--rounds", "5"],
    "drift": ["--models", "1", "--trials", "1", "--no-peer"],
    "readers": None,
    "datasets": ["--files", "1000", "--gib", "0"],
    "monitoring": ["--predictions", "100000", "--rounds", "3"],
    "monitoring_load": ["--predictions", "100000", "--seconds", "2", "--rounds", "1"],
    "monitoring_live": None,
    "notebooks": ["--rounds", "1", "--servers", "2"],
    "agent": None,
    "logs": ["--seconds", "2"],
    "portal": ["--rounds", "5"],
    "scheduler": None,
    "serving": None,
    "tracking": ["--rounds", "1", "--runs", "1000"],
    "footprint": [],  # takes over a minute, most of it with an idle Slipway
}
PACKAGES = ("Django", "celery", "mlflow", "torch", "jupyterhub", "duckdb", "pyarrow", "uvicorn")


@dataclass
class ScriptResult:
    """What the runs of one script said: its cases, or why there are none."""

    name: str
    runs: list[Mapping[str, Any]] = field(default_factory=list)
    failure: str = ""
    seconds: float = 0.0


def run_script(name: str, arguments: Sequence[str], *, within_s: float | None) -> ScriptResult:
    """Run one script once; what it started dies with it when the time is over."""
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "bench" / f"{name}.py"), "--json", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    found = ScriptResult(name)
    try:
        said, _ = process.communicate(timeout=within_s)
        found.runs, found.failure = read_output(said, process.returncode)
        if found.failure:
            found.failure += f" (all it said: {_save_output(name, said)})"
    except subprocess.TimeoutExpired:
        found.failure = f"stopped after {within_s:.0f} s, when the time was over"
    finally:
        stop(process)
    found.seconds = time.monotonic() - began
    return found


def _save_output(name: str, said: str) -> str:
    """Keep what a script said that gave no figures; returns the file, seen from the top folder."""
    file = KEPT / f"{name}.log"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(said, encoding="utf-8")
    return str(file.relative_to(ROOT))


def read_output(said: str, status: int) -> tuple[list[Mapping[str, Any]], str]:
    """Return the cases of a script's last line, or why there are none."""
    lines = said.strip().splitlines()
    try:
        cases = json.loads(lines[-1])["cases"]
    except (IndexError, ValueError, KeyError, TypeError):
        return [], f"exit {status}: {lines[-1][:200] if lines else 'it said nothing'}"
    # Some scripts exit with an error status if a bound is missed. The table shows that anyway.
    return [cases], ""


def stop(process: subprocess.Popen[str]) -> None:
    """End a script and all it has started, gently first, so that it can clear up."""
    for how in (signal.SIGINT, signal.SIGKILL):
        try:
            os.killpg(process.pid, how)
            process.wait(timeout=20)
        except (ProcessLookupError, PermissionError):
            return
        except subprocess.TimeoutExpired:
            continue


def medians(runs: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return each case with the median of its figures over the runs that have it."""
    found: dict[str, dict[str, Any]] = {}
    for name in dict.fromkeys(name for run in runs for name in run):
        told = [run[name] for run in runs if name in run]
        found[name] = {"unit": str(told[0].get("unit", ""))}
        for figure in ("ours", "peer", "ratio"):
            values = [one[figure] for one in told if isinstance(one.get(figure), int | float)]
            found[name][figure] = statistics.median(values) if values else None
    return found


def surroundings() -> dict[str, str]:
    """Say what it was measured on: nothing that names the machine."""
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1024**3
    found = {
        "machine": f"{len(os.sched_getaffinity(0))} cores, {memory_gib:.0f} GiB, {_processor()}",
        "system": f"Linux {platform.release()}, CPython {platform.python_version()}",
        "database": "PostgreSQL" if os.environ.get("DATABASE_URL") else "SQLite",
        "load before": f"{os.getloadavg()[0]:.1f}",
        "commit": _commit(),
        "taken": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
    }
    versions = []
    for package in PACKAGES:
        try:
            versions.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return found | {"versions": ", ".join(versions)}


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def table(results: Sequence[ScriptResult], about: Mapping[str, str], *, quick: bool) -> str:
    """Return the table as Markdown."""
    lines = [f"{name}: {value}  " for name, value in about.items()]
    if quick:
        lines.append("**A quick run: small sizes, few rounds. Not for quoting.**")
    lines += ["", "| comparison | ours | peer | ratio | unit |", "|---|---|---|---|---|"]
    for found in results:
        for name, case in medians(found.runs).items():
            figures = " | ".join(_format_figure(case[one]) for one in ("ours", "peer", "ratio"))
            lines.append(f"| {found.name} `{name}` | {figures} | {case['unit']} |")
    failures = [f"- `{found.name}`: {found.failure}" for found in results if found.failure]
    if failures:
        lines += ["", "Without figures:", "", *failures]
    return "\n".join(lines) + "\n"


def _format_figure(value: float | None) -> str:
    return "" if value is None else f"{value:,.4g}"


def replace_between_markers(text: str, made: str) -> str:
    """Return a page with the table between its marks replaced, or added at its end."""
    block = f"{BEGIN}\n{made}{END}"
    if BEGIN in text and END in text:
        before, _, rest = text.partition(BEGIN)
        return before + block + rest.partition(END)[2]
    return f"{text.rstrip()}\n\n## All comparisons in one run (`bench/run.py`)\n\n{block}\n"


def read_arguments() -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(description="Run the comparisons side by side.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(SCRIPTS)}")
    parser.add_argument("--list", action="store_true", help="name them, and run none")
    parser.add_argument("--quick", action="store_true", help="small, within five minutes in all")
    parser.add_argument("--repeat", type=int, default=1, help="run each so often")
    parser.add_argument("--write", action="store_true", help="put the table into RESULTS.md")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in SCRIPTS]
    if unknown:
        parser.error(f"there is no {unknown[0]}; there are {', '.join(SCRIPTS)}")
    if arguments.quick and arguments.write:
        parser.error("a quick run is not for RESULTS.md; leave --quick or --write out")
    return arguments


def run_all(names: Sequence[str], *, quick: bool, repeat: int) -> list[ScriptResult]:
    """Run the scripts, the repeats interleaved, within five minutes where it has to be quick."""
    results = {name: ScriptResult(name) for name in names}
    deadline = time.monotonic() + QUICK_S if quick else None
    for turn in range(repeat):
        for name, found in results.items():
            left_s = None if deadline is None else deadline - time.monotonic()
            if left_s is not None and left_s < 1:
                found.failure = found.failure or "not reached within five minutes"
                continue
            print(f"{name} ({turn + 1} of {repeat}) …", end=" ", flush=True)
            once = run_script(name, (SCRIPTS[name] or []) if quick else [], within_s=left_s)
            found.runs += once.runs
            found.failure = once.failure
            print(f"{once.seconds:.0f} s {once.failure}", flush=True)
    return list(results.values())


def main() -> int:
    """Run, print and keep; the status is 1 when a script gave no figures."""
    arguments = read_arguments()
    if arguments.list:
        print("\n".join(SCRIPTS))
        return 0
    names = arguments.names or [
        name for name, small in SCRIPTS.items() if not arguments.quick or small is not None
    ]
    about = surroundings()
    results = run_all(names, quick=arguments.quick, repeat=arguments.repeat)
    made = table(results, about, quick=arguments.quick)
    KEPT.mkdir(parents=True, exist_ok=True)
    (KEPT / "RESULTS.md").write_text(made, encoding="utf-8")
    kept = {"about": about, "cases": {one.name: medians(one.runs) for one in results}}
    (KEPT / "results.json").write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    if arguments.write:
        page = RESULTS.read_text(encoding="utf-8")
        RESULTS.write_text(replace_between_markers(page, made), encoding="utf-8")
    print(f"\n{made}")
    late = "not reached", "stopped after"
    missed = [one for one in results if one.failure and not one.failure.startswith(late)]
    return int(bool(missed) or not any(one.runs for one in results))


if __name__ == "__main__":
    raise SystemExit(main())
