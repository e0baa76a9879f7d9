"""Event files of TensorBoard: real ones, and hostile ones."""

import random
import struct
import time
from typing import Any

import pytest

from portal.experiments.results.event_files import MOST_TAGS, read_events
from tests.portal.experiments.event_file_samples import CLASSIC, V2


def crc(data: bytes) -> int:
    """The masked CRC-32C of TFRecord, bit by bit."""
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    value ^= 0xFFFFFFFF
    return ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF


def framed(data: bytes) -> bytes:
    """A record of a file."""
    head = struct.pack("<Q", len(data))
    return head + struct.pack("<I", crc(head)) + data + struct.pack("<I", crc(data))


def scalar(tag: bytes, value: float, step: int = 0) -> bytes:
    """A record with one scalar."""
    inner = b"\x0a" + bytes([len(tag)]) + tag + b"\x15" + struct.pack("<f", value)
    summary = b"\x0a" + bytes([len(inner)]) + inner
    return framed(b"\x10" + bytes([step]) + b"\x2a" + bytes([len(summary)]) + summary)


def read(*files: bytes) -> Any:
    """Return what the files contain, each in a folder named by its number."""
    return read_events(files, folders=[str(number) for number in range(len(files))])


@pytest.fixture
def values() -> Any:
    """Return what both samples contain."""
    return read(CLASSIC, V2)


def test_files_of_both_formats_are_read(values: Any) -> None:
    scalars = {it["tag"]: it for it in values["scalars"]}
    assert scalars["loss/train"]["points"][1] == [1, 1001.0, 0.5]
    assert scalars["acc"]["points"][5] == [5, 1005.0, "NaN"]
    assert scalars["loss"]["folder"] == "1"
    assert [point[2] for point in scalars["loss"]["points"][:2]] == [0.5, 0.25]
    classic, v2 = values["histograms"]
    assert [it["step"] for it in classic["steps"]] == [0, 10]
    assert sum(classic["steps"][0]["counts"]) == 100
    assert v2["steps"] == [{"step": 7, "edges": [-1.0, 0.0, 1.0], "counts": [3.0, 5.0]}]
    assert [(it["tag"], it["step"]) for it in values["images"]] == [("digit", 3), ("sample", 4)]
    assert values["images"][0]["source"].startswith("data:image/png;base64,iVBOR")
    assert values["damaged"] == 0


def test_what_is_damaged_ends_a_file_and_leaves_what_was_before() -> None:
    for content in (
        scalar(b"a", 1.0) + framed(b"x" * 50)[:-3],
        scalar(b"a", 1.0) + struct.pack("<QI", 2**62, crc(struct.pack("<Q", 2**62))) + b"x",
        scalar(b"a", 1.0) + scalar(b"a", 2.0).replace(b"\x15", b"\x16"),
        scalar(b"a", 1.0) + b"\0" * 40,
    ):
        values = read(content)
        assert [it["points"] for it in values["scalars"]] == [[[0, 0.0, 1.0]]]
        assert values["damaged"] == 1
    assert read(b"", b"no event file at all")["scalars"] == []


def test_hostile_messages_are_skipped_and_limits_hold() -> None:
    overlong = framed(b"\x2a\xff\xff\xff\xff\xff\xff\xff\xff\x7f")
    endless = framed(b"\xff" * 60)
    values = read(overlong + endless + scalar(b"a", 1.0))
    assert "records that cannot be decoded: 2" in values["left_out"]
    assert len(values["scalars"]) == 1
    many = read(b"".join(scalar(b"%d" % tag, 1.0) for tag in range(MOST_TAGS + 5)))
    assert len(many["scalars"]) == MOST_TAGS
    assert "values of more tags: 5" in many["left_out"]
    generator = random.Random(7)  # noqa: S311
    sample = bytearray(CLASSIC)
    for _ in range(300):  # no error but those that are reported
        spoiled = bytearray(sample)
        spoiled[generator.randrange(len(spoiled))] = generator.randrange(256)
        body = bytes(spoiled[generator.randrange(len(spoiled)) :])[:200]
        read(bytes(spoiled), framed(body))


def test_a_long_curve_is_thinned_and_read_quickly() -> None:
    began = time.process_time()
    values = read(scalar(b"loss", 0.5) * 20_000)
    assert time.process_time() - began < 5
    (curve,) = values["scalars"]
    assert curve["total"] == 20_000
    assert 500 <= len(curve["points"]) <= 1_001
