"""Cost and duration of a search by ASHA, beside random search, Ray Tune and Optuna.

    .venv/bin/python bench/searches.py [--json] [--no-peers] [--configurations 27]

All sides try the same classifiers of digits (`bench/search_peers/digits_epochs.py`), two at a time.

`asha_compute_vs_random` compares two sweeps on Slipway: the epochs that ASHA trains, whose stopped
trials go on from their checkpoints, with those of a random search that trains every configuration
to the end. It says something if both reach the same accuracy, `asha_accuracy_vs_random`.

`time_vs_ray_tune` and `time_vs_optuna` compare the seconds until a trial has that accuracy. A
running Slipway and a running Ray are given; starting trials, and reporting their values, counts.
Each peer is installed on first use, in an environment of its own below .cache/bench.
"""

import argparse
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "platform"), str(ROOT)]

from bench.needs import DEVELOPMENT, refuse, require  # noqa: E402  (the path comes first)

require([*DEVELOPMENT, "optuna", "sklearn", "redis"])

import httpx  # noqa: E402

from bench.search_peers.digits_epochs import CONFIGURATIONS, EPOCHS, ETA, SLOTS  # noqa: E402
from tests.faults.live import Live  # noqa: E402
from tests.jobs import Jobs  # noqa: E402
from tests.processes import installation, wait_for  # noqa: E402

PEERS = ROOT / "bench" / "search_peers"
CACHE = ROOT / ".cache" / "bench" / "searches"
PATIENCE_S = 1800.0
TIER = {
    "name": "One slot",
    "slug": "slot",
    "resources": {"cpu_millis": 500, "memory_bytes": 1024**3},
    "nano_usd_per_hour": 20_000_000,
}


@dataclass(frozen=True)
class Epoch:
    """The end of an epoch: seconds since the start of the search, and the accuracy."""

    after_s: float
    accuracy: float


@dataclass(frozen=True)
class Search:
    """A search that has ended, by its epochs in the order of their times."""

    name: str
    epochs: Sequence[Epoch]
    seconds: float

    @property
    def best(self) -> float:
        """The best accuracy of any epoch."""
        return max(epoch.accuracy for epoch in self.epochs)

    def seconds_to(self, accuracy: float) -> float | None:
        """Return the seconds until an epoch had the accuracy, None if no epoch has."""
        times = [epoch.after_s for epoch in self.epochs if epoch.accuracy >= accuracy]
        return min(times, default=None)

    @classmethod
    def read(cls, name: str, lines: Sequence[str], start: float, end: float) -> "Search":
        """Read the epochs that trials have printed."""
        rows = [line.split() for line in lines if line.startswith("EPOCH ")]
        epochs = sorted(
            (Epoch(float(at) - start, float(accuracy)) for _, at, _, accuracy in rows),
            key=lambda epoch: epoch.after_s,
        )
        return cls(name, epochs, end - start)


@contextmanager
def platform() -> Iterator[httpx.Client]:
    """Start Slipway with its node and a tier for each of the slots."""
    with tempfile.TemporaryDirectory() as folder, installation(Path(folder)) as site:
        live = Live(site)
        live.start(SLIPWAY_EMBEDDED_NODE="true", SLIPWAY_JOB_PYTHON=sys.executable)
        live.program.wait_for_text("process is warm", within_s=180)
        with live.api() as api:
            api.post("/tiers", json=TIER).raise_for_status()
            yield api


def upload(api: httpx.Client) -> str:
    """Upload the code of a trial. Returns the digest of the snapshot."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name in ("slipway_trial.py", "digits_epochs.py"):
            tar.add(PEERS / name, arcname=name)
    headers = {"Content-Type": "application/octet-stream"}
    sent = api.post("/projects/vision/snapshots", content=packed.getvalue(), headers=headers)
    sent.raise_for_status()
    return str(sent.json()["digest"])


def slipway_search(api: httpx.Client, scheduler: str, configurations: int) -> Search:
    """Run a sweep over the configurations on Slipway."""
    body = {
        "name": scheduler,
        "job": {"script": "slipway_trial.py", "snapshot": upload(api), "tier": "slot"},
        "parameters": {
            "configuration": {"type": "choice", "choices": [*map(str, range(configurations))]}
        },
        "metric": {"name": "accuracy", "goal": "max"},
        "algorithm": "grid",
        "trials": configurations,
        "parallel": SLOTS,
        "scheduler": scheduler,
        "min_values": 1,
        "eta": ETA,
    }
    start = time.time()
    created = api.post("/projects/vision/sweeps", json=body)
    if created.is_error:
        raise SystemExit(f"the sweep was refused: {created.text}")
    path = f"/projects/vision/sweeps/{created.json()['id']}"

    def has_ended() -> bool:
        return str(api.get(path).json()["state"]) not in ("running", "paused")

    wait_for(has_ended, "end of the sweep", within_s=PATIENCE_S, every_s=0.5)
    end = time.time()
    sweep = api.get(path).json()
    if sweep["state"] != "finished":
        raise SystemExit(f"the sweep ended as {sweep['state']}: {sweep['explanation']}")
    trials = api.get(f"{path}/trials", params={"limit": 100})
    trials.raise_for_status()
    lines: list[str] = []
    for trial in trials.json()["items"]:
        lines += Jobs(api).whole_log(trial["job"]).splitlines()
    return Search.read(f"Slipway, {scheduler}", lines, start, end)


def peer_python(name: str, packages: Sequence[str]) -> Path:
    """Return the Python of a peer's environment, which is created on first use."""
    folder = CACHE / name
    python = folder / "bin" / "python"
    try:
        if not (folder / ".ready").exists():
            subprocess.run([sys.executable, "-m", "venv", folder], check=True)
            subprocess.run([python, "-m", "pip", "install", "-q", *packages], check=True)
            (folder / ".ready").touch()
    except (subprocess.CalledProcessError, OSError) as error:
        refuse(f"could not install {name} ({error}); --no-peers runs without it.")
    return python


def peer_search(name: str, script: str, python: Path) -> Search:
    """Run the search of a peer."""
    with tempfile.TemporaryDirectory(prefix="sr-") as folder:
        log = Path(folder) / "epochs.log"
        kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
        own = {"TMPDIR": folder, "OMP_NUM_THREADS": "1", "RAY_TMPDIR": folder}
        done = subprocess.run(
            [python, PEERS / script, log],
            env=kept | own | {"PYTHONPATH": str(PEERS)},
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
        if done.returncode:
            raise SystemExit(f"{name} failed:\n{done.stderr[-4000:]}")
        lines = log.read_text().splitlines()
    times = {
        line.split()[0]: float(line.split()[1]) for line in lines if line[:3] in ("STA", "END")
    }
    return Search.read(name, lines, times["START"], times["END"])


def case(ours: float, peer: float, unit: str) -> dict[str, Any]:
    """Return one case of the results."""
    return {
        "ours": round(ours, 4),
        "peer": round(peer, 4),
        "ratio": round(ours / peer, 4),
        "unit": unit,
    }


def measure(configurations: int, *, with_peers: bool) -> dict[str, dict[str, Any]]:
    """Run all searches one after the other, and print a line for each."""
    with platform() as api:
        random = slipway_search(api, "none", configurations)
        asha = slipway_search(api, "asha", configurations)
    searches = [random, asha]
    if with_peers:
        from_index = ["ray[tune]", "scikit-learn", "numpy"]
        searches += [
            peer_search("Ray Tune, ASHA", "ray_tune.py", peer_python("ray", from_index)),
            peer_search("Optuna, ASHA", "plain_optuna.py", Path(sys.executable)),
        ]
    goal = min(search.best for search in searches)
    for search in searches:
        reached = search.seconds_to(goal)
        print(
            f"{search.name:16} {len(search.epochs):4} epochs, best {search.best:.4f}, "
            f"{goal:.4f} after {reached:6.1f} s, all after {search.seconds:6.1f} s"
        )
    cases = {
        "asha_compute_vs_random": case(len(asha.epochs), len(random.epochs), "epochs"),
        "asha_accuracy_vs_random": case(asha.best, random.best, "of all digits"),
    }
    for name, search in zip(("ray_tune", "optuna"), searches[2:], strict=False):
        reached, peer_reached = asha.seconds_to(goal), search.seconds_to(goal)
        assert reached is not None
        assert peer_reached is not None
        cases[f"time_vs_{name}"] = case(reached, peer_reached, "s")
        cases[f"whole_search_vs_{name}"] = case(asha.seconds, search.seconds, "s")
    return cases


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    parser.add_argument("--no-peers", action="store_true", help="Slipway alone")
    parser.add_argument("--configurations", type=int, default=CONFIGURATIONS)
    arguments = parser.parse_args()
    print(f"{arguments.configurations} configurations, {EPOCHS} epochs at most, {SLOTS} slots")
    cases = measure(arguments.configurations, with_peers=not arguments.no_peers)
    if arguments.json:
        print(json.dumps({"bench": "searches", "cases": cases}))


if __name__ == "__main__":
    main()
