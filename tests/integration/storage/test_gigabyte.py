"""A large file up and down through a real portal, in memory that does not grow with it."""

import hashlib
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.portal.storage.live import MeasuredPortal, measured_portal
from tests.portal.storage.swift_server import ACCESS_KEY, SECRET_KEY, s3_server

pytestmark = [pytest.mark.integration, pytest.mark.slow]
MIB = 1024**2
# The server of the S3 test is a small one in Python: a third still is many times what may be held.
SIZE_BYTES = {"file": 1024 * MIB, "s3": 384 * MIB}
# What one transfer may hold at once: a few pieces on their way, not a hundredth of the file.
MOST_GROWTH_BYTES = 96 * MIB
_BLOCK = hashlib.sha256(b"gigabyte").digest() * (MIB // 32)


def blocks(count: int) -> Iterator[bytes]:
    for number in range(count):
        yield number.to_bytes(8, "big") + _BLOCK[8:]


@contextmanager
def portal_over(kind: str, folder: Path) -> Iterator[MeasuredPortal]:
    if kind == "file":
        with measured_portal(folder) as portal:
            yield portal
        return
    bucket = f"gigabyte-{secrets.token_hex(6)}"
    with s3_server() as server:
        server.make_bucket(bucket)
        settings = {
            "SLIPWAY_STORAGE_URL": f"s3://{bucket}/prod",
            "SLIPWAY_S3_ENDPOINT_URL": server.endpoint_url,
            "SLIPWAY_S3_ACCESS_KEY_ID": ACCESS_KEY,
            "SLIPWAY_S3_SECRET_ACCESS_KEY": SECRET_KEY,
        }
        with measured_portal(folder, **settings) as portal:
            yield portal


@pytest.mark.parametrize("kind", ["file", "s3"])
def test_a_large_file_goes_up_and_down_in_constant_memory(kind: str, tmp_path: Path) -> None:
    size_bytes = SIZE_BYTES[kind]
    with portal_over(kind, tmp_path) as portal, portal.client() as client:
        # Warm up first, so that what is measured is the transfer and not the loading of libraries.
        warm = client.post("projects/vision/files?name=warm", content=blocks(20)).json()
        client.get(f"files/{warm['id']}/content").raise_for_status()
        portal.forget_peak()
        before = portal.peak_rss_bytes()

        made = client.post("projects/vision/files?name=big", content=blocks(size_bytes // MIB))
        assert made.status_code == 201, made.text
        up = portal.peak_rss_bytes() - before
        measure, received = hashlib.sha256(), 0
        with client.stream("GET", f"files/{made.json()['id']}/content") as answer:
            for piece in answer.iter_bytes():
                measure.update(piece)
                received += len(piece)
        down = portal.peak_rss_bytes() - before

    assert received == size_bytes
    assert measure.hexdigest() == made.json()["sha256"]
    assert max(up, down) < MOST_GROWTH_BYTES, f"up {up // MIB} MiB, down {down // MIB} MiB"
