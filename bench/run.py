"""Run the benchmarks, and write one table of all results.

    .venv/bin/python bench/run.py --list
    .venv/bin/python bench/run.py launch strategies      # these two, at full size
    .venv/bin/python bench/run.py --quick                # small sizes, within five minutes
    .venv/bin/python bench/run.py --repeat 3 --write     # all, three times, into bench/RESULTS.md

Scripts run one after the other, and each measures both sides in the same run. Figures are medians
over the rounds of a script, and with `--repeat` medians over the repeats. Quick runs show that a
benchmark works, and a rough result. Their figures are not for quoting, and --write refuses them.
The table goes to .cache/bench/, and with --write between the markers in bench/RESULTS.md.
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
OUTPUT = ROOT / ".cache" / "bench"
BEGIN, END = "<!-- the table of bench/run.py -->", "<!-- its end -->"
QUICK_S = 285.0
# All scripts, the most informative first, with the arguments of a quick run (None: no quick run).
SCRIPTS: dict[str, list[str] | None] = {
    "launch": ["--rounds", "1", "--steps", "300"],
    "strategies": ["ddp", "zero3", "--rounds", "2", "--seconds", "3"],
    "storage": ["--mib", "64"],
    "runs": ["--runs", "2000", "--rounds", "5"],
    "spend": ["--leases", "5000", "--running", "20", "--rounds", "5"],
    "drift": ["--models", "1", "--trials", "1", "--no-peer"],
    "readers": ["--no-peers"],
    "datasets": ["--files", "1000", "--gib", "0"],
    "monitoring": ["--predictions", "100000", "--rounds", "3"],
    "monitoring_load": ["--predictions", "100000", "--seconds", "2", "--rounds", "1"],
    "monitoring_live": None,
    "notebooks": ["--rounds", "1", "--servers", "2"],
    "agent": ["--mib", "40", "--forks", "2"],
    "logs": ["--seconds", "2"],
    "portal": ["--rounds", "5"],
    "relay": ["--mib", "64", "--rounds", "3"],
    "scheduler": ["--sizes", "100"],
    "sweeps": ["--sizes", "10", "1000"],
    "searches": ["--no-peers", "--configurations", "6"],
    "engines": ["--rounds", "1", "--only", "slurm"],
    "engine_poll": ["--size", "50", "--rounds", "2"],
    "engine_recovery": ["--rounds", "1", "--only", "undisturbed", "agent"],
    "environments": ["--packages", "20", "--rounds", "1"],
    "serving": None,
    "tracking": ["--rounds", "1", "--runs", "1000"],
    "frameworks": None,
    "footprint": [],  # takes over a minute, most of it with an idle Slipway
}
PACKAGES = ("Django", "celery", "mlflow", "torch", "jupyterhub", "duckdb", "pyarrow", "uvicorn")


@dataclass
class ScriptResult:
    """Results of the runs of one script: the cases of each run, or the reason of a failure."""

    name: str
    runs: list[Mapping[str, Any]] = field(default_factory=list)
    failure: str = ""
    seconds: float = 0.0


def run_script(name: str, arguments: Sequence[str], *, within_s: float | None) -> ScriptResult:
    """Run one script once. At a timeout, kill it with all its child processes."""
    started = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "bench" / f"{name}.py"), "--json", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    result = ScriptResult(name)
    try:
        output, _ = process.communicate(timeout=within_s)
        result.runs, result.failure = read_output(output, process.returncode)
        if result.failure:
            result.failure += f" (full output: {_save_output(name, output)})"
    except subprocess.TimeoutExpired:
        result.failure = f"stopped after {within_s:.0f} s, at the time limit"
    finally:
        stop(process)
    result.seconds = time.monotonic() - started
    return result


def _save_output(name: str, output: str) -> str:
    """Save the output of a failed script. Returns the path relative to the repository."""
    file = OUTPUT / f"{name}.log"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(output, encoding="utf-8")
    return str(file.relative_to(ROOT))


def read_output(output: str, status: int) -> tuple[list[Mapping[str, Any]], str]:
    """Parse the last line of the output. Returns its cases, and the reason if there are none."""
    lines = output.strip().splitlines()
    try:
        cases = json.loads(lines[-1])["cases"]
    except (IndexError, ValueError, KeyError, TypeError):
        return [], f"exit {status}: {lines[-1][:200] if lines else 'no output'}"
    return [cases], ""


def stop(process: subprocess.Popen[str]) -> None:
    """Stop a script and its child processes: first with SIGINT, so that it can clean up."""
    for number in (signal.SIGINT, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(timeout=20)
        except (ProcessLookupError, PermissionError):
            return
        except subprocess.TimeoutExpired:
            continue


def medians(runs: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the medians of the figures of each case over the runs that contain it."""
    cases: dict[str, dict[str, Any]] = {}
    for name in dict.fromkeys(name for run in runs for name in run):
        figures = [run[name] for run in runs if name in run]
        cases[name] = {"unit": str(figures[0].get("unit", ""))}
        for figure in ("ours", "peer", "ratio"):
            values = [case[figure] for case in figures if isinstance(case.get(figure), int | float)]
            cases[name][figure] = statistics.median(values) if values else None
    return cases


def describe_environment() -> dict[str, str]:
    """Describe the machine and the software, without the name of the machine."""
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1024**3
    about = {
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
    return about | {"versions": ", ".join(versions)}


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
    for result in results:
        for name, case in medians(result.runs).items():
            figures = " | ".join(_format_figure(case[key]) for key in ("ours", "peer", "ratio"))
            lines.append(f"| {result.name} `{name}` | {figures} | {case['unit']} |")
    failures = [f"- `{result.name}`: {result.failure}" for result in results if result.failure]
    if failures:
        lines += ["", "Without figures:", "", *failures]
    return "\n".join(lines) + "\n"


def _format_figure(value: float | None) -> str:
    return "" if value is None else f"{value:,.4g}"


def replace_between_markers(text: str, content: str) -> str:
    """Replace the table between the markers of a page, or append it."""
    block = f"{BEGIN}\n{content}{END}"
    if BEGIN in text and END in text:
        before, _, rest = text.partition(BEGIN)
        return before + block + rest.partition(END)[2]
    return f"{text.rstrip()}\n\n## All comparisons in one run (`bench/run.py`)\n\n{block}\n"


def write_at_once(path: Path, text: str) -> None:
    """Write a file that another run may read or write at the same time."""
    half = path.with_name(f"{path.name}.{os.getpid()}")
    half.write_text(text, encoding="utf-8")
    half.replace(path)


def read_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description="Run the benchmarks.")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"benchmarks to run: {', '.join(SCRIPTS)}"
    )
    parser.add_argument("--list", action="store_true", help="list the benchmarks and exit")
    parser.add_argument(
        "--quick", action="store_true", help="small sizes, within five minutes in total"
    )
    parser.add_argument("--repeat", type=int, default=1, help="number of runs of each")
    parser.add_argument("--write", action="store_true", help="put the table into RESULTS.md")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in SCRIPTS]
    if unknown:
        parser.error(f"there is no {unknown[0]}; choose from {', '.join(SCRIPTS)}")
    if arguments.quick and arguments.write:
        parser.error("a quick run is not for RESULTS.md; omit --quick or --write")
    return arguments


def run_all(names: Sequence[str], *, quick: bool, repeat: int) -> list[ScriptResult]:
    """Run the scripts with interleaved repeats, and within five minutes if `quick`."""
    results = {name: ScriptResult(name) for name in names}
    deadline = time.monotonic() + QUICK_S if quick else None
    for turn in range(repeat):
        for name, result in results.items():
            left_s = None if deadline is None else deadline - time.monotonic()
            if left_s is not None and left_s < 1:
                result.failure = result.failure or "not reached within five minutes"
                continue
            print(f"{name} ({turn + 1} of {repeat}) …", end=" ", flush=True)
            once = run_script(name, (SCRIPTS[name] or []) if quick else [], within_s=left_s)
            result.runs += once.runs
            result.failure = once.failure
            print(f"{once.seconds:.0f} s {once.failure}", flush=True)
    return list(results.values())


def main() -> int:
    """Run the benchmarks, print and save the table. Returns 1 if a script gave no figures."""
    arguments = read_arguments()
    if arguments.list:
        print("\n".join(SCRIPTS))
        return 0
    names = arguments.names or [
        name for name, small in SCRIPTS.items() if not arguments.quick or small is not None
    ]
    about = describe_environment()
    results = run_all(names, quick=arguments.quick, repeat=arguments.repeat)
    text = table(results, about, quick=arguments.quick)
    OUTPUT.mkdir(parents=True, exist_ok=True)
    write_at_once(OUTPUT / "RESULTS.md", text)
    data = {"about": about, "cases": {result.name: medians(result.runs) for result in results}}
    write_at_once(OUTPUT / "results.json", json.dumps(data, indent=1) + "\n")
    if arguments.write:
        page = RESULTS.read_text(encoding="utf-8")
        RESULTS.write_text(replace_between_markers(page, text), encoding="utf-8")
    print(f"\n{text}")
    timeouts = "not reached", "stopped after"
    failed = [
        result for result in results if result.failure and not result.failure.startswith(timeouts)
    ]
    return int(bool(failed) or not any(result.runs for result in results))


if __name__ == "__main__":
    raise SystemExit(main())
