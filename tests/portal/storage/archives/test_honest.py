"""Honest archives come out as they went in, and ours are the same bytes every time."""

import io
import os
import shutil
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portal.core.errors import Conflict, SlipwayError
from portal.storage.archives.limits import ArchiveLimits, UnsafeArchive
from portal.storage.archives.names import parts_of
from portal.storage.archives.pack import pack
from portal.storage.archives.unpack import ExtractionResult, unpack, unpack_file
from portal.storage.ports import BlobStore
from portal.storage.services import store_file
from tests.personas import Personas
from tests.portal.storage.archives.builders import (
    BUILDERS,
    Build,
    Tree,
    tar_gz,
    tree_in,
    with_parents,
    zipped,
)
from tests.turns import thorough_after

MIB = 1024**2
# Each example touches the disk, and the machine is shared.
_patient = settings(deadline=None, max_examples=50)
_letters = st.characters(
    codec="utf-8", exclude_categories=["Cc", "Cs", "Cf"], exclude_characters="/\\:"
)
_parts = st.text(_letters, min_size=1, max_size=12).filter(lambda part: part not in (".", ".."))
_paths = st.lists(_parts, min_size=1, max_size=4).map("/".join)
_trees = st.dictionaries(_paths, st.none() | st.binary(max_size=3000), max_size=12)


def is_one_place_each(tree: Tree) -> bool:
    """Whether no two paths, nor a file and the folder of another, meet on any file system."""
    try:
        _unpacked(BUILDERS["pax"](tree))
    except UnsafeArchive:
        return False
    return True


@contextmanager
def scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def _unpacked(archive: bytes) -> tuple[ExtractionResult, Tree]:
    with scratch() as folder:
        result = unpack(io.BytesIO(archive), into=folder / "out")
        assert [path.name for path in folder.iterdir()] == ["out"]
        return result, tree_in(folder / "out")


def write_tree(folder: Path, tree: Tree) -> None:
    for path, content in tree.items():
        place = folder / path
        if content is None:
            place.mkdir(parents=True, exist_ok=True)
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)


@_patient
@given(tree=_trees.filter(is_one_place_each))
@pytest.mark.parametrize(
    "build", thorough_after(2, [BUILDERS[kind] for kind in ("tar.gz", "zip", "gnu", "pax")])
)
def test_a_tree_comes_out_of_every_kind_as_it_went_in(build: Build, tree: Tree) -> None:
    result, unpacked = _unpacked(build(tree))

    contents = [content for content in tree.values() if content is not None]
    assert unpacked == with_parents(tree)
    assert result == ExtractionResult(len(contents), sum(map(len, contents)))


@pytest.mark.thorough
@_patient
@given(tree=_trees.filter(is_one_place_each), compressed=st.booleans())
def test_what_is_packed_unpacks_the_same_and_packs_to_the_same_bytes(
    tree: Tree, compressed: bool
) -> None:
    with scratch() as folder:
        first, second = folder / "first", folder / "second"
        first.mkdir()
        second.mkdir()
        write_tree(first, tree)
        write_tree(second, dict(reversed(list(tree.items()))))
        os.utime(second, (1, 1))
        packed = b"".join(pack(first, compressed=compressed))

        assert packed == b"".join(pack(second, compressed=compressed))
    assert _unpacked(packed)[1] == with_parents(tree)


@settings(deadline=None)
@given(
    name=st.text(max_size=40)
    | st.lists(st.sampled_from(["..", ".", "", "a", "~", "C:"])).map("/".join)
)
def test_a_name_that_passes_stays_inside(name: str) -> None:
    try:
        parts = parts_of(name, ArchiveLimits())
    except SlipwayError:
        return
    root = "/base/inner"
    place = os.path.normpath(os.path.join(root, *parts))  # noqa: PTH118  (pathlib would hide "..")
    assert place == root or place.startswith(f"{root}/")
    assert os.path.normpath("/".join((root, *parts))) == place


@pytest.mark.thorough
@_patient
@given(data=st.data())
@pytest.mark.parametrize("build", BUILDERS.values(), ids=BUILDERS)
def test_a_damaged_archive_comes_out_whole_or_leaves_nothing(
    build: Build, data: st.DataObject
) -> None:
    archive = bytearray(build({"a": b"1" * 700, "b/c": b"2" * 30, "d": None}))
    for _ in range(data.draw(st.integers(1, 4))):
        archive[data.draw(st.integers(0, len(archive) - 1))] = data.draw(st.integers(0, 255))
    del archive[data.draw(st.integers(len(archive) // 2, len(archive))) :]

    with scratch() as folder:
        try:
            unpack(io.BytesIO(bytes(archive)), into=folder / "out")
        except SlipwayError:
            assert list(folder.iterdir()) == []
        else:
            assert [path.name for path in folder.iterdir()] == ["out"]


@pytest.mark.skipif(shutil.which("tar") is None, reason="no tar here")
@pytest.mark.parametrize("kind", ["gnu", "ustar", "pax"])
def test_what_the_tar_program_packs_comes_out(kind: str, tmp_path: Path) -> None:
    tree = {
        "deep/" * 15 + "file.txt": b"1",
        "x" * 90: b"2",
        "empty": None,
        "café.bin": os.urandom(70_000),
    }
    source = tmp_path / "source"
    source.mkdir()
    write_tree(source, tree)
    (source / "x").write_text("#!/bin/sh\n")
    (source / "x").chmod(0o755)
    packed = tmp_path / "packed.tar.gz"
    subprocess.run(["tar", f"--format={kind}", "-czf", packed, "-C", source, "."], check=True)

    with packed.open("rb") as archive:
        unpack(archive, into=tmp_path / "out")

    assert tree_in(tmp_path / "out") == tree_in(source)
    assert os.access(tmp_path / "out" / "x", os.X_OK)
    assert not os.access(tmp_path / "out" / ("x" * 90), os.X_OK)


def test_what_is_packed_here_the_tar_program_unpacks(tmp_path: Path) -> None:
    tree = {"a/b": b"1", "ü" * 80: b"2", "empty": None}
    source, out = tmp_path / "source", tmp_path / "out"
    source.mkdir()
    out.mkdir()
    write_tree(source, tree)
    packed = b"".join(pack(source))

    subprocess.run(["tar", "-xzf", "-", "-C", out], input=packed, check=True)

    assert tree_in(out) == with_parents(tree)


def test_what_pythons_zip_program_packs_comes_out(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    write_tree(source, {"a/b": b"1" * 5000, "c": b""})
    packed = tmp_path / "packed.zip"
    subprocess.run(
        [sys.executable, "-m", "zipfile", "-c", str(packed), "a", "c"], cwd=source, check=True
    )

    with packed.open("rb") as archive:
        unpack(archive, into=tmp_path / "out")

    assert tree_in(tmp_path / "out") == tree_in(source)


def test_an_empty_archive_makes_an_empty_folder() -> None:
    for build in BUILDERS.values():
        assert _unpacked(build({})) == (ExtractionResult(0, 0), {})


@pytest.mark.thorough
def test_a_large_member_passes_in_constant_memory(tmp_path: Path) -> None:
    content = os.urandom(MIB) * 32
    for build in (tar_gz, zipped):
        archive = tmp_path / "archive"
        archive.write_bytes(build({"large": content}))
        tracemalloc.start()
        with archive.open("rb") as source:
            unpack(source, into=tmp_path / build.__name__)
        _now, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 4 * MIB
        assert (tmp_path / build.__name__ / "large").read_bytes() == content


def test_a_stored_archive_is_unpacked_from_the_store(
    people: Personas, store: BlobStore, tmp_path: Path
) -> None:
    chunks = iter([tar_gz({"train.csv": b"1,2\n"})])
    file = store_file(project=people.vision, by=people.bob, name="data.tar.gz", chunks=chunks)

    result = unpack_file(file=file, into=tmp_path / "data")

    assert result == ExtractionResult(files=1, size_bytes=4)
    assert tree_in(tmp_path / "data") == {"train.csv": b"1,2\n"}


@pytest.mark.parametrize("odd", ["link", "pipe", "name"])
def test_what_could_not_be_unpacked_is_not_packed(odd: str, tmp_path: Path) -> None:
    if odd == "link":
        (tmp_path / "odd").symlink_to("/etc/passwd")
    elif odd == "pipe":
        os.mkfifo(tmp_path / "odd")
    else:
        (tmp_path / "odd\nname").touch()

    with pytest.raises(UnsafeArchive, match="odd"):
        list(pack(tmp_path))


def test_a_file_that_grows_while_it_is_packed_is_told(tmp_path: Path) -> None:
    growing = tmp_path / "log"
    growing.write_bytes(bytes(MIB))
    packing = pack(tmp_path, compressed=False)
    next(packing)

    with growing.open("ab") as file:
        file.write(b"more")

    with pytest.raises(Conflict, match="log changed"):
        list(packing)
