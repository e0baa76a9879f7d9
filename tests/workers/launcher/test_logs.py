"""Logs in segments: every byte at its offset, up to the bound."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from workers.launcher.logs import LogWriter, read_chunk


def read_all(folder: Path, limit: int = 7) -> tuple[bytes, list[tuple[int, int]]]:
    """Everything readable, and the holes as (from, to)."""
    offset, data, holes = 0, b"", []
    while (chunk := read_chunk(folder, offset, limit)).data:
        if chunk.offset != offset:
            holes.append((offset, chunk.offset))
        data += chunk.data
        offset = chunk.offset + len(chunk.data)
    return data, holes


@given(pieces=st.lists(st.binary(max_size=40), max_size=20), limit=st.integers(1, 50))
def test_what_was_written_is_read(
    tmp_path_factory: object, pieces: list[bytes], limit: int
) -> None:
    folder = tmp_path_factory.mktemp("log") / "0"  # type: ignore[attr-defined]
    writer = LogWriter(folder, bound_bytes=1 << 20)
    for piece in pieces:
        writer.append(piece)
    writer.close()
    assert read_all(folder, limit) == (b"".join(pieces), [])
    assert writer.offset == len(b"".join(pieces))


@given(pieces=st.lists(st.binary(min_size=1, max_size=100), max_size=60))
def test_beyond_the_bound_the_head_and_the_tail_stay(
    tmp_path_factory: object, pieces: list[bytes]
) -> None:
    folder = tmp_path_factory.mktemp("log") / "0"  # type: ignore[attr-defined]
    writer = LogWriter(folder, bound_bytes=400)
    for piece in pieces:
        writer.append(piece)
    writer.close()
    written = b"".join(pieces)
    data, holes = read_all(folder)
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 450
    if not holes:
        assert data == written
    else:
        ((start, end),) = holes
        assert data == written[:start] + written[end:]
        assert start >= 100


def test_links_are_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / f"{0:020d}").write_text("secret")
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "0").symlink_to(secret)
    assert not read_chunk(tmp_path / "logs" / "0", 0, 100).data
    (tmp_path / "linked").symlink_to(tmp_path / "logs")
    (tmp_path / "logs" / "1").mkdir()
    (tmp_path / "logs" / "1" / f"{0:020d}").symlink_to(secret / f"{0:020d}")
    assert not read_chunk(tmp_path / "linked" / "1", 0, 100).data


def test_a_full_disk_loses_output_and_says_how_much(tiny_disk: Path) -> None:
    filler = tiny_disk / "filler"
    filler.write_bytes(b"f" * 900 * 1024)
    writer = LogWriter(tiny_disk / "0", bound_bytes=64 << 20)
    for _ in range(20):
        writer.append(b"x" * 65536)
    lost = writer.lost_bytes
    assert lost == 20 * 65536 - writer.offset > 0
    filler.unlink()
    writer.append(b"back again")
    data, holes = read_all(tiny_disk / "0", 1 << 20)
    assert not holes
    assert f"{lost} bytes of output were lost: the disk was full".encode() in data
    assert data.endswith(b"back again")
