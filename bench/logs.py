"""Logs end to end: written by a job, sent by the agent, stored and served by the portal.

    python bench/logs.py [--seconds 10] [--flood-seconds 10] [--rate 50] [--json]

Four ranks of one job write 50 MB/s in total (`--rate`) to a running platform. Every byte must
arrive (each log is read back and its digest compared), with at most a second of delay (each block
contains a timestamp, which is read over the API), in bounded memory. Then the same at the maximum
speed of pipes. The peers are our targets.
"""

import argparse
import hashlib
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "platform"), str(ROOT)]

from bench.needs import DEVELOPMENT, require  # noqa: E402  (the path comes first)

require([*DEVELOPMENT, "redis"])

import httpx  # noqa: E402

from bench.agent import resident_mib  # noqa: E402
from bench.launch import case  # noqa: E402
from tests.faults.live import Live  # noqa: E402
from tests.jobs import Jobs  # noqa: E402
from tests.processes import children_of, command_of, installation, wait_for  # noqa: E402

RANKS, MB = 4, 1_000_000
# Writes blocks: a line with the time, then lines of text. A rate of 0 means: without pauses.
SCRIPT = """
import hashlib, os, sys, time
rate, seconds = float(sys.argv[1]), float(sys.argv[2])
filling = b"".join(b"%08d and the rest of a line of some length, as training prints\\n" % n
                   for n in range(960))
digest, written = hashlib.sha256(), 0
begun = time.time()
while time.time() - begun < seconds and written < 190_000_000:
    block = b"AT %.6f\\n" % time.time() + filling
    digest.update(block)
    written += len(block)
    while block:
        block = block[os.write(1, block):]
    if rate:
        time.sleep(max(0.0, begun + written / rate - time.time()))
totals = (time.time(), written, digest.hexdigest().encode(), time.time() - begun)
os.write(1, b"AT %.6f\\nWROTE %d %s %.3f\\n" % totals)
"""


@contextmanager
def platform() -> Iterator[tuple[Live, Jobs]]:
    """Start Slipway with its node."""
    with tempfile.TemporaryDirectory() as folder, installation(Path(folder)) as site:
        live = Live(site)
        live.start(SLIPWAY_EMBEDDED_NODE="true", SLIPWAY_API_REQUESTS_PER_MINUTE="1000000")
        with live.api() as api:
            wait_for(lambda: api.get("/tiers").json()["items"], "tiers", within_s=60)
            yield live, Jobs(api, poll_s=0.5)


def processes(live: Live) -> dict[str, int]:
    """Return the processes of the platform that transport logs."""
    marks = {"agent": "workers.node_agent", "portal": "manage.py portal"}
    children = children_of(live.program.pid)
    return {
        name: next(pid for pid in children if mark in command_of(pid))
        for name, mark in marks.items()
    }


class Watch:
    """Samples a job while it writes: the delay of its lines, and the memory of processes."""

    def __init__(self, live: Live, jobs: Jobs, job: str) -> None:
        self._api, self._job = jobs.api, job
        self._pids = processes(live)
        self.late_s: list[float] = []
        self.largest_mib = dict.fromkeys(self._pids, 0.0)

    def sample(self) -> None:
        """Take one sample."""
        for name, pid in self._pids.items():
            self.largest_mib[name] = max(self.largest_mib[name], resident_mib(pid))
        size = int(self._read(2**50).headers["X-Log-Size"])
        text = self._read(max(0, size - 150_000)).text
        clock = [line for line in text.splitlines()[1:-1] if line.startswith("AT ")]
        if clock:
            self.late_s.append(time.time() - float(clock[-1].split()[1]))

    def _read(self, offset: int) -> httpx.Response:
        path = f"/projects/vision/jobs/{self._job}/logs"
        return self._api.get(path, params={"offset": offset}).raise_for_status()


def wait_for_end(jobs: Jobs, job: str, rank: int) -> None:
    """Wait until the portal has the whole log of a rank."""
    path = f"/projects/vision/jobs/{job}/logs"
    query = {"rank": rank, "offset": 2**50}
    wait_for(
        lambda: jobs.api.get(path, params=query).headers["X-Log-Complete"] == "true",
        "the whole log",
        within_s=300,
        every_s=0.1,
    )


def verify(jobs: Jobs, job: str, rank: int) -> tuple[int, float]:
    """Read a log back and verify it. Returns its bytes and the seconds it took to write them."""
    path = f"/projects/vision/jobs/{job}/logs"
    digest, offset, tail = hashlib.sha256(), 0, b""
    while True:
        query = {"rank": rank, "offset": offset}
        response = jobs.api.get(path, params=query).raise_for_status()
        if not response.content:
            break
        offset += len(response.content)
        digest.update(tail)
        tail = response.content
    last, totals = tail[tail.rindex(b"AT ") :].split(b"\n")[:2]
    digest.update(tail[: -len(last) - len(totals) - 2])
    _, written, expected, took = totals.split()
    if digest.hexdigest() != expected.decode():
        raise SystemExit(f"the log of rank {rank} is not what it wrote ({offset} bytes arrived)")
    return int(written), float(took)


def run(live: Live, jobs: Jobs, *, rate: float, seconds: float) -> tuple[float, float, Watch]:
    """Run a job that writes. Returns MB/s, seconds from its end to the last byte, and the watch."""
    arguments = [str(rate / RANKS), str(seconds)]
    job = jobs.submit(SCRIPT, args=arguments, procs=RANKS, tier="cpu-large")
    jobs.wait_for(job, "running")
    watch = Watch(live, jobs, job)
    while jobs.state(job) == "running":
        watch.sample()
        time.sleep(0.5)
    end = jobs.end_of(job)
    if end["state"] != "succeeded":
        raise SystemExit(f"the job failed: {end}")
    ended = time.time()
    for rank in range(RANKS):
        wait_for_end(jobs, job, rank)
    behind_s = time.time() - ended
    results = [verify(jobs, job, rank) for rank in range(RANKS)]
    took_s = max(took for _, took in results)
    return sum(written for written, _ in results) / MB / took_s, behind_s, watch


def measure(rate: float, seconds: float, flood_seconds: float) -> dict[str, Any]:
    """Run all measurements and return the cases."""
    with platform() as (live, jobs):
        paced_rate, behind_s, paced = run(live, jobs, rate=rate * MB, seconds=seconds)
        flood, caught_up_s, flooded = run(live, jobs, rate=0.0, seconds=flood_seconds)
    late_s = sorted(paced.late_s)
    if not late_s:
        raise SystemExit("No line was seen while the job ran: increase --seconds.")
    largest = {name: max(mib, flooded.largest_mib[name]) for name, mib in paced.largest_mib.items()}
    return {
        "rate_without_loss": case(paced_rate, rate, "MB/s"),
        "late_median": case(late_s[len(late_s) // 2], 1.0, "s"),
        "late_p95": case(late_s[len(late_s) * 95 // 100], 1.0, "s"),
        "last_byte_after_end": case(behind_s, 1.0, "s"),
        "flood_without_loss": case(flood, 50.0, "MB/s"),
        "flood_last_byte_after_end": case(caught_up_s, 60.0, "s"),
        "agent_memory": case(largest["agent"], 150.0, "MiB"),
        "portal_memory": case(largest["portal"], 250.0, "MiB"),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, default=50.0, help="MB/s of the paced job")
    parser.add_argument("--seconds", type=float, default=10.0, help="length of the paced job")
    parser.add_argument("--flood-seconds", type=float, default=10.0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    cases = measure(options.rate, options.seconds, options.flood_seconds)
    for name, figures in cases.items():
        print(f"{name:26} {figures['ours']} {figures['unit']} (bound {figures['peer']})")
    if options.json:
        print(json.dumps({"bench": "logs", "cases": cases}))


if __name__ == "__main__":
    main()
