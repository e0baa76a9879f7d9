"""Costs and throughput of the node agent: memory, forks of a warm process, output of ranks.

    python bench/agent.py [--mib 400] [--forks 10] [--json]

The peers are our targets, such as 50 MB/s of output per node and one second to `running`.
"""

import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "platform"), str(ROOT)]

from bench.needs import DEVELOPMENT, require  # noqa: E402  (the path comes first)

require([*DEVELOPMENT, "torch"])

from bench.launch import case  # noqa: E402
from tests.workers.fake_portal import GIB, make_spec  # noqa: E402
from tests.workers.machines import Site, eventually  # noqa: E402

MIB = 1024 * 1024


def wait_until_warm(site: Site) -> None:
    """Wait until the warm process is ready."""
    site.portal.state.prewarm = ["torch"]
    site.portal.state.bump()
    eventually(
        lambda: any(warm.state == "ready" for warm in site.portal.state.heartbeats[-1].warm),
        within_s=120,
    )


# Writes as fast as the pipe accepts data.
FLOOD = """
import os, sys
block = b"x" * 1023 + b"\\n"
block *= 256
for _ in range(int(sys.argv[1]) // len(block)):
    view = memoryview(block)
    while view:
        view = view[os.write(1, view):]
"""


def resident_mib(pid: int) -> float:
    """Return the resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / MIB


def measure_output(site: Site, ranks: int, total_bytes: int) -> tuple[float, float]:
    """Return MB/s from the ranks to the portal, and the peak memory of the agent."""
    assert site.machine.agent is not None
    bytes_per_rank = total_bytes // ranks
    digest = site.portal.state.add_snapshot({"flood.py": FLOOD})
    spec = make_spec("python", "flood.py", str(bytes_per_rank), snapshot=digest, procs=ranks)
    started = time.monotonic()
    key = site.portal.state.want(site.new_name(), spec)
    largest = 0.0
    sizes = site.portal.state.log_sizes
    while sum(sizes[(*key, rank)] for rank in range(ranks)) < bytes_per_rank * ranks // MIB * MIB:
        largest = max(largest, resident_mib(site.machine.agent.pid))
        time.sleep(0.02)
        if time.monotonic() - started > 300:
            raise SystemExit(f"output was lost: {dict(sizes)}")
    return bytes_per_rank * ranks / 1e6 / (time.monotonic() - started), largest


def measure_forks(site: Site, count: int) -> list[float]:
    """Return the seconds from the request to `running`, from a warm process."""
    seconds = []
    for _ in range(count):
        digest = site.portal.state.add_snapshot({"a.py": "pass"})
        spec = make_spec(
            *("python", "a.py"),
            snapshot=digest,
            warm="torch",
            procs=2,
            resources={"cpu_millis": 2000, "memory_bytes": 4 * GIB},
        )
        started = time.time()
        key = site.portal.state.want(site.new_name(), spec)
        site.end_of(key)
        running = next(
            report for report in site.portal.state.reports[key] if report.kind == "running"
        )
        assert running.warm
        seconds.append(running.at_unix_ms / 1000 - started)
    return seconds


def measure(mib: int, forks: int) -> dict[str, Any]:
    """Run all measurements and return the cases."""
    site = Site()
    try:
        assert site.machine.agent is not None
        idle = resident_mib(site.machine.agent.pid)
        one_rank, largest = measure_output(site, 1, mib * MIB)
        four_ranks, largest_of_four = measure_output(site, 4, mib * MIB)
        wait_until_warm(site)
        warm = eventually(lambda: site.portal.state.heartbeats[-1].warm)[0]
        running_s = statistics.median(measure_forks(site, forks))
    finally:
        site.close()
    return {
        "output_one_rank": case(one_rank, 50.0, "MB/s"),
        "output_four_ranks": case(four_ranks, 50.0, "MB/s"),
        "agent_memory_idle": case(idle, 150.0, "MiB"),
        "agent_memory_flooded": case(max(largest, largest_of_four), 150.0, "MiB"),
        "warm_process_memory": case(warm.memory_bytes / MIB, 325.0, "MiB"),
        "wish_to_running_warm": case(running_s, 1.0, "s"),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=400, help="output of the ranks in total")
    parser.add_argument("--forks", type=int, default=10, help="jobs from the warm process")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    cases = measure(options.mib, options.forks)
    for name, figures in cases.items():
        print(f"{name:24} {figures['ours']} {figures['unit']} (bound {figures['peer']})")
    if options.json:
        print(json.dumps({"bench": "agent", "cases": cases}))


if __name__ == "__main__":
    main()
