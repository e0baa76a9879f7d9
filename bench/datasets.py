"""What memory a dataset of very many files, or of very many bytes, takes beside one plain file.

    .venv/bin/python bench/datasets.py [--files 100000] [--gib 20] [--json]

A real portal with its control worker; a client pushes a folder and fetches the version into an
empty cache, each in a process of its own. Memory is the highest RSS of the client, the portal and
the control worker meanwhile, together; the peer is the same with one file of 64 MiB.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "platform"), str(ROOT)]

from tests.portals import RunningPortal, running_portal  # noqa: E402  (the path comes first)
from tests.processes import children_of, command_of  # noqa: E402

MIB = 1024**2
MARKS = {"portal": "manage.py portal", "control": "workers.control"}
# A fixed pattern of bytes. A number in front of it makes every piece unique.
_PATTERN = os.urandom(MIB - 8)
_PUSH = """
import resource, sys
import slipway
with slipway.Client() as client:
    client.datasets.push(sys.argv[1], sys.argv[2], project=sys.argv[3])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
_FETCH = """
import resource, sys
import slipway
from slipway.datasets import dataset
with slipway.Client() as client:
    found = dataset(sys.argv[1], project=sys.argv[3], client=client)
    print(sum(1 for path in found.path.rglob("*") if path.is_file()), file=sys.stderr)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def one_file(folder: Path) -> None:
    """Write a file of 64 MiB."""
    big_file(folder / "one.bin", mib=64, seed=1)


def small_files_writer(count: int) -> Callable[[Path], None]:
    """Return what writes small files, a thousand to a folder."""

    def write(folder: Path) -> None:
        for number in range(count):
            place = folder / f"{number // 1000:05}"
            place.mkdir(exist_ok=True)
            (place / f"{number:07}.txt").write_text(f"{number}\n" * 40)

    return write


def large_files_writer(gib: int) -> Callable[[Path], None]:
    """Return what writes files of 2 GiB at most, that many GiB together."""

    def write(folder: Path) -> None:
        for number, first in enumerate(range(0, gib, 2)):
            mib = 1024 * min(2, gib - first)
            big_file(folder / f"{number}.bin", mib=mib, seed=100 + number)

    return write


def big_file(path: Path, *, mib: int, seed: int) -> None:
    """Write a file none of whose pieces is in another."""
    with path.open("wb") as file:
        for number in range(mib):
            file.write((seed << 32 | number).to_bytes(8, "big") + _PATTERN)


class MeasuredPlatform:
    """A Slipway whose processes' memory is looked at."""

    def __init__(self, running: RunningPortal, folder: Path) -> None:
        self._running = running
        self._folder = folder
        with running.client("alice") as api:
            self._project = api.post("/projects", json={"name": "Many"}).json()["slug"]

    def pushed_and_fetched(self, name: str, write: Callable[[Path], None]) -> float:
        """Write a folder, push it and fetch it; returns the highest memory in MiB."""
        source, cache = self._folder / name, self._folder / "cache"
        source.mkdir()
        write(source)
        self._forget_peaks()
        found = []
        for what, script in (("pushed", _PUSH), ("fetched", _FETCH)):
            began = time.monotonic()
            found.append(self._client(script, name, source, cache))
            took = time.monotonic() - began
            print(f"{name} {what} in {took:.1f} s, client {found[-1]:.0f} MiB", file=sys.stderr)
        shutil.rmtree(source)
        shutil.rmtree(cache)
        peaks = {mark: self._peak_mib(mark) for mark in MARKS}
        told = ", ".join(f"{mark} {mib:.0f} MiB" for mark, mib in peaks.items())
        print(f"{name}: {told}", file=sys.stderr)
        return max(found) + sum(peaks.values())

    def _client(self, script: str, name: str, source: Path, cache: Path) -> float:
        done = subprocess.run(
            [sys.executable, "-c", script, name, str(source), self._project],
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(self._folder),
                "PYTHONPATH": str(ROOT / "platform"),
                "SLIPWAY_URL": self._running.url,
                "SLIPWAY_TOKEN": self._running.tokens["alice"],
                "SLIPWAY_CACHE": str(cache),
            },
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        return int(done.stdout.split()[-1]) * resource_unit_bytes() / MIB

    def _pids(self, mark: str) -> list[int]:
        children = children_of(self._running.program.pid)
        return [pid for pid in children if MARKS[mark] in command_of(pid)]

    def _forget_peaks(self) -> None:
        for mark in MARKS:
            for pid in self._pids(mark):
                Path(f"/proc/{pid}/clear_refs").write_text("5")

    def _peak_mib(self, mark: str) -> float:
        status = [Path(f"/proc/{pid}/status").read_text() for pid in self._pids(mark)]
        return sum(int(text.partition("VmHWM:")[2].split()[0]) / 1024 for text in status)


def resource_unit_bytes() -> int:
    """What getrusage counts memory in: KiB on Linux, bytes on macOS."""
    return 1 if sys.platform == "darwin" else 1024


def main() -> None:
    """Measure, tell."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--gib", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    shapes = {f"memory_{given.files}_files": small_files_writer(given.files)}
    if given.gib:
        shapes[f"memory_{given.gib}_gib"] = large_files_writer(given.gib)
    cases = {}
    with tempfile.TemporaryDirectory(prefix="slipway-bench-") as name:
        folder = Path(name)
        with running_portal(folder / "portal", command=("up", "--no-input")) as running:
            measured = MeasuredPlatform(running, folder)
            peer = measured.pushed_and_fetched("one", one_file)
            for shape, write in shapes.items():
                ours = measured.pushed_and_fetched(shape.replace("_", "-"), write)
                cases[shape] = {"ours": ours, "peer": peer, "ratio": ours / peer, "unit": "MiB"}
                print(f"{shape}: {ours:.0f} MiB beside {peer:.0f} MiB")
    if given.json:
        print(json.dumps({"bench": "datasets", "cases": cases}))


if __name__ == "__main__":
    main()
