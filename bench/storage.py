"""Upload and download rates of a file, and memory use, compared with a plain verified copy.

    .venv/bin/python bench/storage.py [--mib 1024] [--json]

On disk the peer is close to the optimum: copying the file on the same disk, hashing it with SHA-256
and syncing it. On S3 it is an upload and download of the file by s3fs, also hashed. "portal" goes
over HTTP to a real uvicorn process with a token, with client and server on the same machine. "s3"
is only the store, with a real S3 server (Swift) on the same machine. Rates are MB/s (10^6 bytes).
Both sides take turns, and the figures are medians of the runs.
"""

import argparse
import hashlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "platform"), str(ROOT)]

from bench.needs import DEVELOPMENT, require  # noqa: E402  (the path comes first)

require([*DEVELOPMENT, "s3fs", "swift"])

import s3fs  # noqa: E402

from portal.storage.backend import open_store  # noqa: E402
from portal.storage.digests import verified  # noqa: E402  (the path comes first)
from portal.storage.ports import BlobStore, StoredBytes, UploadDeclaration  # noqa: E402
from tests.portal.storage.live import MeasuredPortal, measured_portal  # noqa: E402
from tests.portal.storage.swift_server import S3Server, s3_server  # noqa: E402

MIB = 1024**2
RUNS = 3
# The test server is written in Python: more data would only measure that server longer.
S3_MIB = 128
LIMIT_BYTES = 1024**4
Cases = dict[str, tuple[float, float, str]]
Work = Callable[[], object]


def pieces_of(path: Path) -> Iterator[bytes]:
    """Read a file in pieces of 1 MiB."""
    with path.open("rb") as file:
        while piece := file.read(MIB):
            yield piece


def random_file(path: Path, mib: int) -> Path:
    """Write a random file of `mib` MiB."""
    with path.open("wb") as file:
        for _ in range(mib):
            file.write(os.urandom(MIB))
    return path


def compare_rates(size_bytes: int, ours: Work, peer: Work) -> tuple[float, float, str]:
    """Return the median rates of both sides, measured in turns."""
    rates: tuple[list[float], list[float]] = ([], [])
    for _ in range(RUNS):
        for work, side in zip((ours, peer), rates, strict=True):
            started = time.perf_counter()
            work()
            side.append(size_bytes / 1e6 / (time.perf_counter() - started))
    return statistics.median(rates[0]), statistics.median(rates[1]), "MB/s"


def copy_up(source: Path, target: Path) -> None:
    """Copy a file, hashing and syncing it."""
    digest = hashlib.sha256()
    with target.open("wb") as file:
        for piece in pieces_of(source):
            digest.update(piece)
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
    target.unlink()


def read_down(source: Path) -> None:
    """Read a file, hashing it."""
    digest = hashlib.sha256()
    for piece in pieces_of(source):
        digest.update(piece)


class BenchObject:
    """One object in a store, which is replaced and read repeatedly."""

    def __init__(self, store: BlobStore, source: Path) -> None:
        self._store = store
        self._source = source
        self._stored: StoredBytes | None = None
        digest = hashlib.sha256()
        for piece in pieces_of(source):
            digest.update(piece)
        self._declared = UploadDeclaration(sha256=digest.hexdigest())

    def put(self, promised: UploadDeclaration | None = None) -> None:
        """Store the file, replacing the previous object."""
        if self._stored is not None:
            self._store.delete(self._stored.key)
        self._stored = self._store.put(
            pieces_of(self._source),
            promised=promised or UploadDeclaration(),
            limit_bytes=LIMIT_BYTES,
        )

    def put_declared(self) -> None:
        """Store the file with a declared digest."""
        self.put(self._declared)

    def read(self) -> None:
        """Read and verify the whole object."""
        if self._stored is None:
            raise RuntimeError("no object has been stored")
        chunks = self._store.read(self._stored.key, start=0, length=self._stored.size_bytes)
        for _ in verified(chunks, sha256=self._stored.sha256, size_bytes=self._stored.size_bytes):
            pass


def disk_cases(folder: Path, source: Path) -> Cases:
    """Measure the disk store without the portal."""
    size_bytes = source.stat().st_size
    stored = BenchObject(open_store(f"file://{folder}/blobs", {}), source)
    return {
        "disk up": compare_rates(size_bytes, stored.put, lambda: copy_up(source, folder / "copy")),
        "disk down": compare_rates(size_bytes, stored.read, lambda: read_down(source)),
    }


def s3_cases(server: S3Server, source: Path) -> Cases:
    """Measure the S3 store without the portal."""
    size_bytes = source.stat().st_size
    server.make_bucket("bench")
    stored = BenchObject(open_store("s3://bench", server.options), source)
    plain = s3fs.S3FileSystem(
        client_kwargs={"region_name": "us-east-1"}, skip_instance_cache=True, **server.options
    )

    def up() -> None:
        read_down(source)
        plain.put_file(str(source), "bench/plain", chunksize=8 * MIB, max_concurrency=1)

    def down() -> None:
        target = source.with_name("down")
        plain.get_file("bench/plain", str(target))
        read_down(target)
        target.unlink()

    return {
        "s3 up": compare_rates(size_bytes, stored.put, up),
        "s3 up, digest declared": compare_rates(size_bytes, stored.put_declared, up),
        "s3 down": compare_rates(size_bytes, stored.read, down),
    }


def portal_cases(portal: MeasuredPortal, source: Path) -> Cases:
    """Measure transfers over HTTP, and the memory of the serving process."""
    size_bytes = source.stat().st_size
    ids: list[str] = []
    with portal.client() as client:

        def up() -> None:
            length = {"Content-Length": str(size_bytes)}
            response = client.post(
                "projects/vision/files?name=big", content=pieces_of(source), headers=length
            )
            ids.append(response.raise_for_status().json()["id"])

        def down() -> None:
            with client.stream("GET", f"files/{ids[-1]}/content") as response:
                for _ in response.iter_raw():
                    pass

        portal.forget_peak()
        before = portal.peak_rss_bytes()
        cases: Cases = {
            "portal up": compare_rates(
                size_bytes, up, lambda: copy_up(source, source.with_name("copy"))
            ),
            "portal down": compare_rates(size_bytes, down, lambda: read_down(source)),
        }
        peak = portal.peak_rss_bytes()
    growth = (peak - before) / MIB
    return cases | {
        "portal memory growth, beside the size of the file": (growth, size_bytes / MIB, "MiB"),
        "portal peak memory, beside the memory before": (peak / MIB, before / MIB, "MiB"),
    }


def measure(mib: int) -> Cases:
    """Run all measurements with a file of `mib` MiB of random bytes."""
    with tempfile.TemporaryDirectory(prefix="bench-storage-") as name:
        folder = Path(name)
        source = random_file(folder / "source", mib)
        cases = disk_cases(folder, source)
        (folder / "portal").mkdir()
        with measured_portal(folder / "portal") as portal:
            cases |= portal_cases(portal, source)
        with s3_server() as server:
            cases |= s3_cases(server, random_file(folder / "for-s3", min(mib, S3_MIB)))
        return cases


def main() -> None:
    """Print a table, and with --json one line of JSON at the end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=1024, help="size of the file")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    arguments = parser.parse_args()
    cases = measure(arguments.mib)
    for name, (ours, peer, unit) in cases.items():
        print(f"{name:<52} {ours:9.1f} {unit:<5} peer {peer:9.1f}  ratio {ours / peer:5.2f}")
    if arguments.json:
        figures = {
            name: {
                "ours": round(ours, 2),
                "peer": round(peer, 2),
                "ratio": round(ours / peer, 3),
                "unit": unit,
            }
            for name, (ours, peer, unit) in cases.items()
        }
        print(json.dumps({"bench": "storage", "cases": figures}))


if __name__ == "__main__":
    main()
