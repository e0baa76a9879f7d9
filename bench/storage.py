"""How fast a file goes up and down, and what memory that takes, beside a plain verified copy.

    .venv/bin/python bench/storage.py [--mib 1024] [--json]

On disk the peer is what nobody can beat by much: copying the file on the same disk while hashing it
with SHA-256, and syncing it. On S3 it is s3fs's own upload and download of the file, hashed too.
"portal" goes through a real uvicorn process over HTTP with a token, and client and server share the
machine; "s3" is the store alone against a real S3 server (Swift), on the same machine too. Rates
are MB/s (10^6 bytes); ours and the peer take turns, and the median of the runs counts.
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

import s3fs

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "platform"), str(ROOT)]

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
    """Yield a file in pieces of 1 MiB."""
    with path.open("rb") as file:
        while piece := file.read(MIB):
            yield piece


def random_file(path: Path, mib: int) -> Path:
    """Write a file of that many MiB."""
    with path.open("wb") as file:
        for _ in range(mib):
            file.write(os.urandom(MIB))
    return path


def compare_rates(size_bytes: int, ours: Work, peer: Work) -> tuple[float, float, str]:
    """Return the median rates of two that take turns."""
    rates: tuple[list[float], list[float]] = ([], [])
    for _ in range(RUNS):
        for work, found in zip((ours, peer), rates, strict=True):
            began = time.perf_counter()
            work()
            found.append(size_bytes / 1e6 / (time.perf_counter() - began))
    return statistics.median(rates[0]), statistics.median(rates[1]), "MB/s"


def copy_up(source: Path, target: Path) -> None:
    """Copy a file, hashing and syncing it."""
    measure = hashlib.sha256()
    with target.open("wb") as file:
        for piece in pieces_of(source):
            measure.update(piece)
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
    target.unlink()


def read_down(source: Path) -> None:
    """Read a file, hashing it."""
    measure = hashlib.sha256()
    for piece in pieces_of(source):
        measure.update(piece)


class BenchObject:
    """One object in a store: put again and again, read, always one at a time."""

    def __init__(self, store: BlobStore, source: Path) -> None:
        self._store = store
        self._source = source
        self._stored: StoredBytes | None = None
        measure = hashlib.sha256()
        for piece in pieces_of(source):
            measure.update(piece)
        self._declared = UploadDeclaration(sha256=measure.hexdigest())

    def put(self, promised: UploadDeclaration | None = None) -> None:
        """Put the file in place of the one before."""
        if self._stored is not None:
            self._store.delete(self._stored.key)
        self._stored = self._store.put(
            pieces_of(self._source),
            promised=promised or UploadDeclaration(),
            limit_bytes=LIMIT_BYTES,
        )

    def put_declared(self) -> None:
        """Put the file, its digest declared."""
        self.put(self._declared)

    def read(self) -> None:
        """Read it whole, verified."""
        if self._stored is None:
            raise RuntimeError("nothing was put")
        chunks = self._store.read(self._stored.key, start=0, length=self._stored.size_bytes)
        for _ in verified(chunks, sha256=self._stored.sha256, size_bytes=self._stored.size_bytes):
            pass


def disk_cases(folder: Path, source: Path) -> Cases:
    """Measure the store on disk, without the portal around it."""
    size_bytes = source.stat().st_size
    kept = BenchObject(open_store(f"file://{folder}/blobs", {}), source)
    return {
        "disk up": compare_rates(size_bytes, kept.put, lambda: copy_up(source, folder / "copy")),
        "disk down": compare_rates(size_bytes, kept.read, lambda: read_down(source)),
    }


def s3_cases(server: S3Server, source: Path) -> Cases:
    """Measure the store on S3, without the portal around it."""
    size_bytes = source.stat().st_size
    server.make_bucket("bench")
    kept = BenchObject(open_store("s3://bench", server.options), source)
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
        "s3 up": compare_rates(size_bytes, kept.put, up),
        "s3 up, digest declared": compare_rates(size_bytes, kept.put_declared, up),
        "s3 down": compare_rates(size_bytes, kept.read, down),
    }


def portal_cases(portal: MeasuredPortal, source: Path) -> Cases:
    """Measure the whole way over HTTP, and the memory of the process that serves it."""
    size_bytes = source.stat().st_size
    made: list[str] = []
    with portal.client() as client:

        def up() -> None:
            length = {"Content-Length": str(size_bytes)}
            answer = client.post(
                "projects/vision/files?name=big", content=pieces_of(source), headers=length
            )
            made.append(answer.raise_for_status().json()["id"])

        def down() -> None:
            with client.stream("GET", f"files/{made[-1]}/content") as answer:
                for _ in answer.iter_raw():
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
    """Run everything on a file of that many MiB of random bytes."""
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
        told = {
            name: {
                "ours": round(ours, 2),
                "peer": round(peer, 2),
                "ratio": round(ours / peer, 3),
                "unit": unit,
            }
            for name, (ours, peer, unit) in cases.items()
        }
        print(json.dumps({"bench": "storage", "cases": told}))


if __name__ == "__main__":
    main()
