"""Recovery of a Slurm pool after a process was killed: seconds until a job does its next step.

    .venv/bin/python bench/engine_recovery.py [--json] [--rounds 3] [--only agent portal ...]

All on this machine: a real cluster of two nodes, and a whole Slipway. `undisturbed` is a script of
one line, from its submission to that line. Each other case kills one process with SIGKILL and
counts from then. `agent` and `slurmd` kill what a job runs in: it goes on in its next attempt. The
others kill what the next job needs, which is submitted at once, and again until it is accepted:
`portal`, `control_worker` and `redis` come back by themselves, `slurmctld` is started again, as by
systemd. Medians. The peer is `undisturbed`, in the same run.
"""

import argparse
import json
import os
import re
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "platform"), str(ROOT)]

from bench.needs import DEVELOPMENT, require  # noqa: E402  (the path comes first)

require([*DEVELOPMENT, "redis"])

from bench.django_for_tests import set_up  # noqa: E402

set_up()

import httpx  # noqa: E402

from tests.integration.pools.jobs import (  # noqa: E402
    log_of,
    prepare,
    submit,
    wait_for_state,
)
from tests.portals import RunningPortal, running_slipway  # noqa: E402
from tests.processes import children_of, command_of, wait_for  # noqa: E402
from tests.slurm_cluster import SlurmCluster, missing_programs, running_slurm  # noqa: E402

STEP = "import time; print('STEP', time.time(), flush=True)"
# It goes on until it is asked to end.
STEPS = f"{STEP}\nwhile True: time.sleep(1)"
_WITHIN_S = 300.0
# What `manage.py up` starts, by words of its command.
_PROCESSES = {
    "portal": "manage.py portal",
    "control_worker": "workers.control",
    "redis": "redis-server",
}


class Bench:
    """A cluster, and a Slipway with a pool of it."""

    def __init__(
        self, slurm: SlurmCluster, slipway: RunningPortal, root: httpx.Client, nodes: Path
    ) -> None:
        self.slurm = slurm
        self.slipway = slipway
        self.root = root
        self.nodes = nodes

    def next_step(self, job: str, since: float) -> float:
        """Return the seconds from a time to the first step of a job after it."""

        def look() -> float | None:
            with suppress(httpx.TransportError):
                steps = re.findall(r"^STEP (\S+)\n", log_of(self.root, job), re.MULTILINE)
                return min((float(at) for at in steps if float(at) > since), default=None)
            return None

        at = wait_for(look, f"next step of {job}", within_s=_WITHIN_S)
        assert at is not None
        return at - since

    def submit(self, script: str) -> str:
        """Submit a job, again while nobody answers."""

        def attempt() -> str | None:
            with suppress(httpx.HTTPError, AssertionError):
                return submit(self.root, script=script)
            return None

        job = wait_for(attempt, "answer of the portal", within_s=_WITHIN_S)
        assert job is not None
        return job

    def undisturbed(self) -> float:
        """Submit a job to a cluster without work."""
        since = time.time()
        return self.end(self.next_step(job := self.submit(STEP), since), job)

    def after(self, kill: Callable[[], None]) -> float:
        """Submit a job at the moment in which a process is killed."""
        since = time.time()
        kill()
        return self.end(self.next_step(job := self.submit(STEP), since), job)

    def resumed(self, kill: Callable[[], None]) -> float:
        """Kill what a job runs in."""
        job = self.submit(STEPS)
        self.next_step(job, 0)
        since = time.time()
        kill()
        seconds = self.next_step(job, since)
        self.root.post(f"/projects/vision/jobs/{job}/cancel", json={}).raise_for_status()
        return self.end(seconds, job)

    def end(self, seconds: float, job: str) -> float:
        """Wait for the end of a job and of its allocation."""
        wait_for_state(self.root, job, "succeeded", "failed", "stopped", "lost")
        wait_for(
            lambda: self.root.get("/pools/twin").json()["requests"] == 0,
            "end of the allocation",
            within_s=120,
        )
        self.slurm.wait_until_idle()
        return seconds

    def kill_of_slipway(self, name: str) -> None:
        """Kill a process that the supervisor starts again."""
        words = _PROCESSES[name]
        (pid,) = (
            pid for pid in children_of(self.slipway.program.process.pid) if words in command_of(pid)
        )
        os.kill(pid, signal.SIGKILL)

    def kill_slurmctld(self) -> None:
        """Kill the controller and start it again."""
        self.slurm.programs["slurmctld"].signal(signal.SIGKILL)
        self.slurm.programs["slurmctld"].wait()
        self.slurm.start("slurmctld")

    def kill_agent(self) -> None:
        """Kill the agent of the job that runs."""
        agents = [
            pid
            for pid in self.slurm.processes_of_steps()
            if f"workers.node_agent --data-dir {self.nodes} " in command_of(pid)
        ]
        for pid in agents:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def kill_slurmd(self) -> None:
        """Kill the node that runs the job, with all that it has started, and start it again."""
        (name,) = self.slurm.run("squeue", "--noheader", "--states=RUNNING", "--format=%N").split()
        self.slurm.programs[name].signal(signal.SIGKILL)
        self.slurm.programs[name].wait()
        own = {program.pid for program in self.slurm.programs.values()}
        for pid in set(self.slurm.processes_of_steps()) - own:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.slurm.start(name)


def cases_of(bench: Bench) -> dict[str, Callable[[], float]]:
    """Return the cases by name."""
    killed = {
        name: lambda name=name: bench.after(lambda: bench.kill_of_slipway(name))
        for name in _PROCESSES
    }
    return {
        "undisturbed": bench.undisturbed,
        **killed,
        "slurmctld": lambda: bench.after(bench.kill_slurmctld),
        "agent": lambda: bench.resumed(bench.kill_agent),
        "slurmd": lambda: bench.resumed(bench.kill_slurmd),
    }


NAMES = ("undisturbed", *_PROCESSES, "slurmctld", "agent", "slurmd")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES)
    arguments = parser.parse_args()
    cases: dict[str, Any] = {}
    if missing := missing_programs():
        print(f"SKIPPED: Slurm is not installed: {', '.join(missing)}", file=sys.stderr)
    else:
        with tempfile.TemporaryDirectory(prefix="recovery-") as name:
            cases = measure(Path(name), arguments.only, arguments.rounds)
    if arguments.json:
        print(json.dumps({"bench": "engine_recovery", "cases": cases}))


def measure(folder: Path, names: list[str], rounds: int) -> dict[str, Any]:
    """Run the cases in turns and return their medians."""
    times: dict[str, list[float]] = {name: [] for name in names}
    with running_slurm(folder / "slurm") as slurm, running_slipway(folder / "slipway") as slipway:
        settings = {
            "partition": "main",
            "slurm_conf": str(slurm.conf),
            "folder": str(folder / "nodes"),
            "portal_url": slipway.url,
        }
        with slipway.client("root") as root:
            prepare(root, {"name": "twin", "engine": "slurm", "settings": settings})
            bench = Bench(slurm, slipway, root, folder / "nodes")
            bench.undisturbed()
            runs = cases_of(bench)
            for _ in range(rounds):
                for name in names:
                    times[name].append(runs[name]())
    for name, each in times.items():
        print(f"{name}: {statistics.median(each):.1f} s of {rounds} rounds", flush=True)
    medians = {name: round(statistics.median(each), 2) for name, each in times.items()}
    peer = medians.get("undisturbed")
    return {
        f"recovery_{name}": {
            "ours": median,
            "peer": peer,
            "ratio": round(median / peer, 3) if peer else None,
            "unit": "s",
        }
        for name, median in medians.items()
    }


if __name__ == "__main__":
    main()
