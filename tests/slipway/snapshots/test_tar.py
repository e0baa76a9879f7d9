"""The archive: readable by everybody, and the same bytes for the same files."""

import io
import os
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipway import errors
from slipway.snapshots.tar import Member, header, pack

NAMES = st.text(
    alphabet=st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="/\\"),
    min_size=1,
    max_size=40,
).filter(lambda name: name not in (".", ".."))
TREES = st.dictionaries(
    st.lists(NAMES, min_size=1, max_size=5).map("/".join), st.binary(max_size=2000), max_size=8
)


def test_the_headers_are_those_the_standard_library_writes() -> None:
    for name in ("a.py", "x" * 100, "deep/" * 40 + "é.py", "y" * 101, "p/" * 60 + "q"):
        info = tarfile.TarInfo(name)
        info.size, info.mode = 12345, 0o755
        with tarfile.open(fileobj=io.BytesIO(header(name, size_bytes=0, is_executable=True))) as us:
            member = us.next()
        assert member is not None
        assert (member.name, member.mode, member.mtime) == (name, 0o755, 0)
    plain = tarfile.TarInfo("a.py")
    plain.size = 7
    ours = header("a.py", size_bytes=7)
    theirs = plain.tobuf(tarfile.USTAR_FORMAT)
    assert ours[:329] == theirs[:329], "the standard library also writes device numbers"


@given(tree=TREES)
def test_any_tree_comes_out_as_it_went_in_and_packs_the_same_twice(tree: dict[str, bytes]) -> None:
    members = [Member(path, content) for path, content in tree.items()]
    once = b"".join(pack(members))
    assert b"".join(pack(members[::-1])) == once
    assert len(once) % 10240 == 0
    with tarfile.open(fileobj=io.BytesIO(once)) as archive:
        names = archive.getnames()
        files = {name: archive.extractfile(name) for name in names}
    assert names == sorted(tree, key=str.encode)
    assert {name: file.read() for name, file in files.items() if file} == tree


def test_a_file_that_grows_is_taken_as_long_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "log.txt"
    file.write_bytes(b"x" * 600_000)
    pieces = pack([Member("log.txt", file)])
    first = next(pieces)
    with file.open("ab") as more:
        more.write(b"y" * 1000)
    with tarfile.open(fileobj=io.BytesIO(first + b"".join(pieces))) as archive:
        assert archive.getmember("log.txt").size == 600_000


def test_a_file_that_shrinks_is_told_and_not_padded(tmp_path: Path) -> None:
    file = tmp_path / "log.txt"
    file.write_bytes(b"x" * 600_000)
    pieces = pack([Member("log.txt", file)])
    next(pieces)
    os.truncate(file, 10)
    with pytest.raises(errors.Conflict, match=r"log\.txt changed while"):
        list(pieces)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(errors.Conflict, match="changed"):
        list(pack([Member("gone.py", tmp_path / "gone.py")]))
    (tmp_path / "link").symlink_to("elsewhere")
    with pytest.raises(errors.InvalidInput, match="cannot be read"):
        list(pack([Member("link", tmp_path / "link")]))
