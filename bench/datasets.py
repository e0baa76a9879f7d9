"""Peak memory of a dataset with very many files, or very many bytes, compared with one small file.

    .venv/bin/python bench/datasets.py [--files 100000] [--gib 20] [--peer-mib 64]
        [--json]

Starts a real portal with its control worker. A client pushes a folder and fetches the version into
an empty cache, each in its own process. Memory is the sum of the peak RSS of the client, the portal
and the control worker. The peer is the same with one file of 64 MiB (`--peer-mib`).
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

from bench.needs import require, require_disk  # noqa: E402  (the path comes first)

require()

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
    version = dataset(sys.argv[1], project=sys.argv[3], client=client)
    print(sum(1 for path in version.path.rglob("*") if path.is_file()), file=sys.stderr)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def one_file_writer(mib: int) -> Callable[[Path], None]:
    """Return a function that writes one file."""
    return lambda folder: big_file(folder / "one.bin", mib=mib, seed=1)


def small_files_writer(count: int) -> Callable[[Path], None]:
    """Return a function that writes small files, a thousand in each folder."""

    def write(folder: Path) -> None:
        for number in range(count):
            subfolder = folder / f"{number // 1000:05}"
            subfolder.mkdir(exist_ok=True)
            (subfolder / f"{number:07}.txt").write_text(f"{number}\n" * 40)

    return write


def large_files_writer(gib: int) -> Callable[[Path], None]:
    """Return a function that writes files of at most 2 GiB, `gib` GiB in total."""

    def write(folder: Path) -> None:
        for number, first in enumerate(range(0, gib, 2)):
            mib = 1024 * min(2, gib - first)
            big_file(folder / f"{number}.bin", mib=mib, seed=100 + number)

    return write


def big_file(path: Path, *, mib: int, seed: int) -> None:
    """Write a file whose pieces are unique, so that nothing is deduplicated."""
    with path.open("wb") as file:
        for number in range(mib):
            file.write((seed << 32 | number).to_bytes(8, "big") + _PATTERN)


class MeasuredPlatform:
    """A running Slipway and the peak memory of its processes."""

    def __init__(self, running: RunningPortal, folder: Path) -> None:
        self._running = running
        self._folder = folder
        with running.client("alice") as api:
            self._project = api.post("/projects", json={"name": "Many"}).json()["slug"]

    def push_and_fetch(self, name: str, write: Callable[[Path], None]) -> float:
        """Write a folder, push it and fetch it. Returns the peak memory in MiB."""
        source, cache = self._folder / name, self._folder / "cache"
        source.mkdir()
        write(source)
        self._reset_peaks()
        client_mib = []
        for action, script in (("pushed", _PUSH), ("fetched", _FETCH)):
            started = time.monotonic()
            client_mib.append(self._client(script, name, source, cache))
            took = time.monotonic() - started
            print(
                f"{name} {action} in {took:.1f} s, client {client_mib[-1]:.0f} MiB", file=sys.stderr
            )
        shutil.rmtree(source)
        shutil.rmtree(cache)
        peaks = {mark: self._peak_mib(mark) for mark in MARKS}
        memory = ", ".join(f"{mark} {mib:.0f} MiB" for mark, mib in peaks.items())
        print(f"{name}: {memory}", file=sys.stderr)
        return max(client_mib) + sum(peaks.values())

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

    def _reset_peaks(self) -> None:
        for mark in MARKS:
            for pid in self._pids(mark):
                Path(f"/proc/{pid}/clear_refs").write_text("5")

    def _peak_mib(self, mark: str) -> float:
        status = [Path(f"/proc/{pid}/status").read_text() for pid in self._pids(mark)]
        return sum(int(text.partition("VmHWM:")[2].split()[0]) / 1024 for text in status)


def resource_unit_bytes() -> int:
    """Return the unit of ru_maxrss in bytes: KiB on Linux, bytes on macOS."""
    return 1 if sys.platform == "darwin" else 1024


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--gib", type=int, default=20)
    parser.add_argument("--peer-mib", type=int, default=64)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    shapes = {f"memory_{arguments.files}_files": small_files_writer(arguments.files)}
    if arguments.gib:
        shapes[f"memory_{arguments.gib}_gib"] = large_files_writer(arguments.gib)
    cases = {}
    with tempfile.TemporaryDirectory(prefix="slipway-bench-") as name:
        folder = Path(name)
        # The files, their stored copy and the fetched one.
        require_disk(folder, 3 * arguments.gib)
        with running_portal(folder / "portal", command=("up", "--no-input")) as running:
            platform = MeasuredPlatform(running, folder)
            peer = platform.push_and_fetch("one", one_file_writer(arguments.peer_mib))
            for shape, write in shapes.items():
                ours = platform.push_and_fetch(shape.replace("_", "-"), write)
                cases[shape] = {"ours": ours, "peer": peer, "ratio": ours / peer, "unit": "MiB"}
                print(f"{shape}: {ours:.0f} MiB, peer {peer:.0f} MiB")
    if arguments.json:
        print(json.dumps({"bench": "datasets", "cases": cases}))


if __name__ == "__main__":
    main()
