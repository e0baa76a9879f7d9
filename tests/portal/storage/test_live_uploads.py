"""Uploads and downloads through a real uvicorn process, where Django's test client cannot reach."""

import hashlib
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.portal.storage.live import MeasuredPortal, measured_portal
from tests.processes import wait_for

MIB = 1024**2
BLOCK = hashlib.sha256(b"block").digest() * (MIB // 32)
_DEADLINE_S = 20


@pytest.fixture(scope="module")
def portal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MeasuredPortal]:
    with measured_portal(tmp_path_factory.mktemp("portal")) as running:
        yield running


def blobs(portal: MeasuredPortal) -> list[Path]:
    return [path for path in (portal.data_dir / "blobs").rglob("*") if path.is_file()]


def drafts(portal: MeasuredPortal) -> list[Path]:
    return [path for path in blobs(portal) if path.parent.name == "drafts"]


def blocks(count: int) -> Iterator[bytes]:
    for number in range(count):
        yield number.to_bytes(8, "big") + BLOCK[8:]


def digest_of(count: int) -> str:
    measure = hashlib.sha256()
    for block in blocks(count):
        measure.update(block)
    return measure.hexdigest()


def begin_upload(portal: MeasuredPortal, headers: str) -> socket.socket:
    address = portal.url.removeprefix("http://")
    host, port = address.split(":")
    connection = socket.create_connection((host, int(port)), timeout=_DEADLINE_S)
    begun = f"POST /api/v1/projects/vision/files?name=a.bin HTTP/1.1\r\nHost: {address}"
    connection.sendall(f"{begun}\r\n{headers}\r\n\r\n".encode())
    return connection


def own_headers(portal: MeasuredPortal) -> str:
    return "\r\n".join(f"{name}: {value}" for name, value in portal.headers.items())


@pytest.mark.parametrize("chunked", [True, False], ids=["chunked", "with a length"])
def test_a_stream_goes_up_and_comes_down_unchanged(portal: MeasuredPortal, chunked: bool) -> None:
    count = 40
    length = {} if chunked else {"Content-Length": str(count * MIB)}
    declared = {"X-Slipway-Sha256": digest_of(count)}

    with portal.client() as client:
        made = client.post(
            "projects/vision/files?name=a.bin", content=blocks(count), headers=length | declared
        )
        assert made.status_code == 201, made.text
        measure = hashlib.sha256()
        with client.stream("GET", f"files/{made.json()['id']}/content") as answer:
            for piece in answer.iter_bytes():
                measure.update(piece)

    assert answer.headers["Content-Length"] == str(count * MIB)
    assert measure.hexdigest() == digest_of(count) == made.json()["sha256"]
    assert drafts(portal) == []


def test_an_empty_file_goes_up_and_comes_down(portal: MeasuredPortal) -> None:
    with portal.client() as client:
        made = client.post("projects/vision/files?name=empty", content=b"")
        assert made.status_code == 201, made.text
        down = client.get(f"files/{made.json()['id']}/content")

    assert (down.status_code, down.content) == (200, b"")


def test_a_stranger_is_refused_before_a_byte_of_the_body_is_taken(portal: MeasuredPortal) -> None:
    before = blobs(portal)
    headers = "Content-Type: application/octet-stream\r\nContent-Length: 1000000000000"

    with begin_upload(portal, headers) as connection:
        answer = connection.recv(65_536)

    assert b" 401 " in answer.splitlines()[0]
    assert blobs(portal) == before


def test_a_client_that_vanishes_half_way_leaves_nothing(portal: MeasuredPortal) -> None:
    before = blobs(portal)
    with begin_upload(portal, f"{own_headers(portal)}\r\nContent-Length: 100000000") as connection:
        connection.sendall(BLOCK * 8)
        wait_for(lambda: len(blobs(portal)) > len(before), "upload under way")

    wait_for(lambda: blobs(portal) == before, "cleaning up")


@pytest.mark.thorough
def test_many_slow_transfers_keep_nobody_from_the_database(portal: MeasuredPortal) -> None:
    """There are more transfers than connections to the database, and than threads of requests."""
    count = 80
    before = len(blobs(portal))
    headers = f"{own_headers(portal)}\r\nContent-Length: 100000000"
    with portal.client() as client, ExitStack() as slow:
        made = client.post("projects/vision/files?name=big", content=blocks(20)).json()
        for _ in range(count):
            slow.enter_context(begin_upload(portal, headers)).sendall(BLOCK * 2)
            down = slow.enter_context(client.stream("GET", f"files/{made['id']}/content"))
            assert down.status_code == 200
        wait_for(lambda: len(blobs(portal)) >= before + 1 + count, "uploads under way")

        answer = client.get("projects/vision/files", timeout=10)

    assert answer.status_code == 200
    wait_for(lambda: len(blobs(portal)) == before + 1, "cleaning up")


def test_a_body_over_the_limit_is_refused_when_it_is_no_upload(portal: MeasuredPortal) -> None:
    with portal.client() as client:
        to_another_address = client.post("projects", content=b"[" * 2 * MIB)
        chunked = client.post("projects", content=iter([b"[" * MIB] * 2))
        another_type = client.post(
            "projects/vision/files?name=a",
            content=b"[" * 2 * MIB,
            headers={"Content-Type": "text/csv"},
        )

    assert [answer.status_code for answer in (to_another_address, chunked, another_type)] == [
        413
    ] * 3


def test_a_damaged_file_breaks_off_instead_of_ending_well(portal: MeasuredPortal) -> None:
    with portal.client() as client:
        made = client.post("projects/vision/files?name=b.bin", content=blocks(21)).json()
        digest = made["sha256"]
        (path,) = [blob for blob in blobs(portal) if blob.name.startswith(digest[2:])]
        with path.open("r+b") as file:
            file.seek(10 * MIB)
            file.write(b"\xff")
        received = bytearray()

        def receive() -> None:
            with client.stream("GET", f"files/{made['id']}/content") as answer:
                for piece in answer.iter_bytes():
                    received.extend(piece)

        with pytest.raises(httpx.RemoteProtocolError):
            receive()

    assert len(received) < 21 * MIB


@pytest.mark.thorough
def test_memory_stays_flat_while_files_go_up_and_down(portal: MeasuredPortal) -> None:
    with portal.client() as client:
        client.post("projects/vision/files?name=warm", content=blocks(8)).raise_for_status()
        portal.forget_peak()
        before = portal.peak_rss_bytes()
        made = client.post("projects/vision/files?name=big", content=blocks(200)).json()
        with client.stream("GET", f"files/{made['id']}/content") as answer:
            assert sum(map(len, answer.iter_bytes())) == 200 * MIB

    assert portal.peak_rss_bytes() - before < 48 * MIB
