"""Archives meant to harm: each is refused, says why, and leaves nothing behind."""

import gzip
import io
import os
import re
import stat
import struct
import tarfile
import zipfile
import zlib
from pathlib import Path
from typing import Any

import pytest

from portal.core.errors import Conflict, SlipwayError
from portal.storage.archives.limits import (
    ArchiveLimits,
    ArchiveTooLarge,
    BrokenArchive,
    UnsafeArchive,
)
from portal.storage.archives.unpack import unpack
from tests.portal.storage.archives.builders import (
    Build,
    pax,
    tar_gz,
    tar_member,
    tar_of,
    tree_in,
    ustar,
    zip_member,
    zip_of,
    zipped,
)

MIB = 1024**2


def refuse(
    archive: bytes, tmp_path: Path, kind: type[SlipwayError], limits: ArchiveLimits | None = None
) -> str:
    """Unpack what must be refused; returns the message. The folder around must stay as it was."""
    house = tmp_path / "house"
    house.mkdir(exist_ok=True)
    (house / "neighbour").write_text("untouched")
    with pytest.raises(kind) as caught:
        unpack(io.BytesIO(archive), into=house / "out", limits=limits or ArchiveLimits())
    assert tree_in(house) == {"neighbour": b"untouched"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["house"]
    assert caught.value.next_step
    return caught.value.message


NAMES = {
    "../evil": "points outside",
    "a/../../evil": "points outside",
    "a/..": "points outside",
    "..": "points outside",
    "/etc/cron.d/evil": "absolute",
    "//evil": "absolute",
    "C:/evil": "absolute",
    "c:evil": "absolute",
    "a\\..\\evil": "backslash",
    "\\\\server\\share": "backslash",
    "a//b": "empty part",
    "a/./b": "empty part",
    ".//a": "absolute|empty part",
    "line\nbreak": "U\\+000A",
    "esc\x1b[2J": "U\\+001B",
    "abc\u202etxt.exe": "U\\+202E",
}


@pytest.mark.parametrize("make", [ustar, pax, tar_gz, zipped])
@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_leads_out_or_deceives_is_refused(
    name: str, make: Build, tmp_path: Path
) -> None:
    archive = make({"fine": b"1", name: b"evil"})

    message = refuse(archive, tmp_path, UnsafeArchive)

    assert repr(name) in message
    assert re.search(NAMES[name], message)


def test_a_nul_in_a_zip_name_is_refused(tmp_path: Path) -> None:
    archive = zip_of([zip_member("innocent.txtX../evil", b"1")]).replace(b"txtX", b"txt\0")

    assert "U+0000" in refuse(archive, tmp_path, UnsafeArchive)


@pytest.mark.parametrize("records", ["path=../evil", "path=/etc/passwd", "path=a\0/../../b"])
def test_a_name_hidden_in_a_pax_header_is_refused(records: str, tmp_path: Path) -> None:
    key, _, value = records.partition("=")
    archive = tar_of(
        [tar_member("innocent", b"1", pax_headers={key: value})], format=tarfile.PAX_FORMAT
    )

    refuse(archive, tmp_path, UnsafeArchive)


KINDS: dict[str, dict[str, Any]] = {
    "symbolic link": {"type": tarfile.SYMTYPE, "linkname": "/etc"},
    "hard link": {"type": tarfile.LNKTYPE, "linkname": "../neighbour"},
    "named pipe": {"type": tarfile.FIFOTYPE},
    "device": {"type": tarfile.CHRTYPE, "devmajor": 1, "devminor": 3},
    "device ": {"type": tarfile.BLKTYPE},
    "sparse file": {"type": tarfile.GNUTYPE_SPARSE},
    "neither a file nor a folder": {"type": tarfile.CONTTYPE},
}


@pytest.mark.parametrize("kind", KINDS)
def test_anything_in_a_tar_but_files_and_folders_is_refused(kind: str, tmp_path: Path) -> None:
    archive = tar_of([tar_member("fine", b"1"), tar_member("odd", **KINDS[kind])])

    message = refuse(archive, tmp_path, UnsafeArchive)

    assert "'odd'" in message
    assert kind.strip() in message


@pytest.mark.parametrize(
    "mode", [stat.S_IFLNK, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFIFO, stat.S_IFSOCK]
)
def test_anything_in_a_zip_but_files_and_folders_is_refused(mode: int, tmp_path: Path) -> None:
    archive = zip_of([zip_member("odd", b"/etc", mode=mode | 0o777)])

    assert "'odd'" in refuse(archive, tmp_path, UnsafeArchive)


def test_writing_through_a_link_is_refused(tmp_path: Path) -> None:
    """The class of ClearML's CVE-2025-8917: a link first, then a file below it."""
    link = tar_member("logs", type=tarfile.SYMTYPE, linkname="..")

    refuse(tar_of([link, tar_member("logs/neighbour", b"evil")]), tmp_path, UnsafeArchive)


@pytest.mark.parametrize(
    "names",
    [
        ("a", "a"),
        ("README", "readme"),
        ("caf\u00e9", "cafe\u0301"),
        ("straße", "STRASSE"),
        ("a", "a/b"),
        ("a/b", "a"),
        ("Data/x", "data/y"),
        ("./a", "a"),
    ],
)
@pytest.mark.parametrize("make", [pax, zipped])
def test_two_members_in_one_place_are_refused(
    names: tuple[str, str], make: Build, tmp_path: Path
) -> None:
    first, second = names
    members = {first: b"1", second: b"2"}
    if first == second:
        archive = (
            zip_of([zip_member("a", b"1"), zip_member("b", b"2")]).replace(b"b", b"a")
            if make is zipped
            else tar_of([tar_member("a", b"1"), tar_member("a", b"2")])
        )
    else:
        archive = make(members)

    refuse(archive, tmp_path, UnsafeArchive)


def test_set_user_bits_times_and_owners_are_dropped(tmp_path: Path) -> None:
    plain = tar_member("tool", b"#!/bin/sh\n", mode=0o6755, uid=0, gid=0, mtime=1)
    closed = tar_member("open", b"1", mode=0o666)

    unpack(io.BytesIO(tar_of([plain, closed])), into=tmp_path / "out")

    assert (tmp_path / "out/tool").stat().st_mode & 0o7777 == 0o755
    assert (tmp_path / "out/open").stat().st_mode & 0o7777 == 0o644
    assert (tmp_path / "out/tool").stat().st_mtime > 1_000_000


SMALL = ArchiveLimits(members=10, total_bytes=MIB, member_bytes=MIB // 2, depth=4, name_bytes=20)


@pytest.mark.parametrize("make", [ustar, tar_gz, zipped])
def test_more_than_the_limits_allow_is_refused(make: Build, tmp_path: Path) -> None:
    trees = {
        "10 files and folders": {str(number): b"" for number in range(11)},
        "10 files and folders ": {"/".join("abcd"[:3]) + f"/{n}": b"" for n in range(9)},
        "524288 bytes": {"a": os.urandom(MIB // 2 + 1)},
        "1048576 bytes": {str(number): os.urandom(400_000) for number in range(3)},
        "deeper than 4": {"a/b/c/d/e": b""},
        "more than 20 bytes": {"x" * 21: b""},
    }
    for words, tree in trees.items():
        message = refuse(make(tree), tmp_path, ArchiveTooLarge, SMALL)
        assert words.strip() in message


@pytest.mark.parametrize("make", [tar_gz, zipped])
def test_a_bomb_is_stopped_by_its_ratio_long_before_its_size(make: Build, tmp_path: Path) -> None:
    archive = make({"zeros": bytes(100 * MIB)})

    assert "200 times" in refuse(archive, tmp_path, ArchiveTooLarge)


def test_a_bomb_of_nested_gzip_layers_opens_only_once(tmp_path: Path) -> None:
    inner = tar_gz({"zeros": bytes(100 * MIB)})

    unpack(io.BytesIO(tar_gz({"inner.tar.gz": inner})), into=tmp_path / "out")

    assert (tmp_path / "out/inner.tar.gz").read_bytes() == inner


def test_a_tar_header_that_claims_more_than_comes_is_cut_short(tmp_path: Path) -> None:
    archive = tar_of([tar_member("a", b"1234", size=4)])
    lying = bytearray(archive)
    lying[124:136] = b"00000100000\0"
    lying[148:156] = b" " * 8
    lying[148:156] = b"%06o\0 " % sum(lying[:512])

    assert "truncated" in refuse(bytes(lying[:1024]), tmp_path, BrokenArchive)


def header(name: bytes, size: bytes, kind: bytes = b"0", magic: bytes = b"ustar\x0000") -> bytes:
    """Return one tar header with a right checksum and whatever else is asked for."""
    block = bytearray(512)
    block[: len(name)] = name
    block[100:108] = b"0000644\0"
    block[124 : 124 + len(size)] = size
    block[148:156] = b" " * 8
    block[156:157] = kind
    block[257 : 257 + len(magic)] = magic
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


END = bytes(1024)


@pytest.mark.parametrize(
    ("size", "kind"),
    [
        (b"\xff" * 12, BrokenArchive),
        (b"-0000000001\0", BrokenArchive),
        (b"99999999999\0", BrokenArchive),
        (b"\x80" + b"\xff" * 11, ArchiveTooLarge),
        (b"77777777777\0", BrokenArchive),
    ],
)
def test_an_absurd_size_in_a_tar_header_is_refused(
    size: bytes, kind: type[SlipwayError], tmp_path: Path
) -> None:
    """The class of CVE-2025-8194: negative sizes that send a reader backwards, for ever."""
    refuse(header(b"a", size) + END, tmp_path, kind)


@pytest.mark.parametrize("kind", [b"x", b"g", b"L"])
def test_an_extension_header_of_a_gigabyte_is_not_taken_into_memory(
    kind: bytes, tmp_path: Path
) -> None:
    archive = gzip.compress(header(b"pax", b"10000000000\0", kind) + bytes(8 * MIB))

    assert "extension headers" in refuse(archive, tmp_path, ArchiveTooLarge)


def test_extension_headers_without_end_are_refused(tmp_path: Path) -> None:
    archive = (header(b"pax", b"00000000000\0", b"x")) * 1000 + END

    assert "extension headers" in refuse(archive, tmp_path, ArchiveTooLarge)


@pytest.mark.parametrize(
    "record",
    [
        *(b"x", b"9 path=a", b"99 path=a\n", b"0 path=a\n", b"3 \n", b"-1 path=a\n", b"8 path \n"),
        *(b"11111111 path=a\n", b"9999999999999999999999 path=a\n"),
        *(b"10 path=\xff\n", b"11 size=-1\n"),
    ],
)
def test_a_damaged_pax_header_is_refused(record: bytes, tmp_path: Path) -> None:
    body = record.ljust(512, b"\0")
    size = b"%011o\0" % len(record)
    archive = header(b"pax", size, b"x") + body + header(b"a", b"0" * 11) + END

    refuse(archive, tmp_path, BrokenArchive)


@pytest.mark.parametrize("record", [b"path=b\n", b"size=512\n"])
def test_a_name_or_size_for_all_members_is_refused(record: bytes, tmp_path: Path) -> None:
    line = b"%d %s" % (len(record) + 3, record)
    size = b"%011o\0" % len(line)
    archive = header(b"pax", size, b"g") + line.ljust(512, b"\0") + header(b"a", b"0" * 11) + END

    refuse(archive, tmp_path, UnsafeArchive)


@pytest.mark.parametrize(
    "archive",
    [
        b"",
        b"hello",
        bytes(512),
        b"x" * 2048,
        b"PK\x05\x06",
        b"PK\x03\x04" + bytes(100),
        b"\x1f\x8b",
        gzip.compress(b"not a tar"),
        gzip.compress(b"x" * 1024),
        ustar({"a": b"1"})[:512],
        ustar({"a": b"1"})[:1024],
        tar_gz({"a": os.urandom(10_000)})[:5_000],
        tar_gz({"a": b"1"})[:-4] + b"\0\0\0\0",
        zipped({"a": b"1"})[:-10],
        ustar({"a": b"1"}) + ustar({"b": b"2"}),
        ustar({"a": b"1"}) + b"tail".ljust(512),
        bytes(512) + ustar({"a": b"1"}),
        ustar({"a": b"1"}) + bytes(2 * MIB),
    ],
    # The same names in every process: some of these bytes hold the time they were made.
    ids=range(18),
)
def test_what_is_no_whole_archive_is_refused(archive: bytes, tmp_path: Path) -> None:
    refuse(archive, tmp_path, BrokenArchive)


def test_a_zip_that_lies_about_a_size_is_refused(tmp_path: Path) -> None:
    content = os.urandom(5_000)
    archive = bytearray(zipped({"a": content}))
    at = archive.rindex(b"PK\x01\x02")
    for size in (100, 50_000):
        lying = bytearray(archive)
        lying[at + 24 : at + 28] = struct.pack("<L", size)
        refuse(bytes(lying), tmp_path, BrokenArchive)


def test_a_zip_member_with_a_wrong_checksum_is_refused(tmp_path: Path) -> None:
    archive = zip_of([zip_member("a", b"some content")], zipfile.ZIP_STORED)

    refuse(archive.replace(b"some content", b"SOME content"), tmp_path, BrokenArchive)


def test_a_zip_whose_two_names_differ_is_refused(tmp_path: Path) -> None:
    archive = zip_of([zip_member("innocent", b"1")])
    at = archive.index(b"innocent")

    refuse(archive[:at] + b"../evil!" + archive[at + 8 :], tmp_path, BrokenArchive)


def test_zip_members_that_share_their_bytes_are_refused(tmp_path: Path) -> None:
    """The class of bomb that makes petabytes from one kernel of compressed bytes."""
    kernel = zip_of([zip_member("a", bytes(MIB))])
    directory = kernel.rindex(b"PK\x01\x02")
    end = kernel.rindex(b"PK\x05\x06")
    entry = kernel[directory:end]
    names = [bytes([letter]) for letter in b"abcdefgh"]
    entries = b"".join(entry[:46] + name + entry[47:] for name in names)
    tail = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 8, 8, len(entries), directory, 0)

    refuse(kernel[:directory] + entries + tail, tmp_path, UnsafeArchive)


def test_a_zip_with_a_directory_of_unusual_size_is_refused(tmp_path: Path) -> None:
    entry = struct.pack("<4s4B4HL2L5H2L", b"PK\x01\x02", *[0] * 18)
    entries = entry * 40_000
    tail = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 40_000, 40_000, len(entries), 0, 0)

    limits = ArchiveLimits(members=1000)
    refuse(b"PK\x05\x06" + entries + tail, tmp_path, ArchiveTooLarge, limits)


@pytest.mark.parametrize("bit", [0x1, 0x41])
def test_an_encrypted_member_is_refused(bit: int, tmp_path: Path) -> None:
    archive = bytearray(zipped({"a": b"1"}))
    archive[6] |= bit
    archive[archive.rindex(b"PK\x01\x02") + 8] |= bit

    assert "encrypted" in refuse(bytes(archive), tmp_path, UnsafeArchive)


@pytest.mark.parametrize("compression", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_compressions_in_a_zip_are_refused(compression: int, tmp_path: Path) -> None:
    archive = zip_of([zip_member("a", b"1" * 1000)], compression)

    assert "deflate" in refuse(archive, tmp_path, UnsafeArchive)


def test_a_folder_that_exists_is_never_written_into(tmp_path: Path) -> None:
    for name, make in (("folder", Path.mkdir), ("file", Path.touch)):
        (tmp_path / name).mkdir() if make is Path.mkdir else (tmp_path / name).touch()
        with pytest.raises(Conflict, match="exists"):
            unpack(io.BytesIO(ustar({"a": b"1"})), into=tmp_path / name)
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(Conflict, match="exists"):
        unpack(io.BytesIO(ustar({"a": b"1"})), into=tmp_path / "link")

    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder", "link"]


def test_a_stream_that_runs_on_behind_its_declared_end_gives_no_more(tmp_path: Path) -> None:
    """The header says 10 bytes and the right checksum of 10; the stream would give a gigabyte."""
    squeeze = zlib.compressobj(wbits=-15)
    stream = squeeze.compress(bytes(50 * MIB)) + squeeze.flush()
    crc = zlib.crc32(bytes(10))
    fields = struct.pack("<HHHLLLHH", 8, 0, 33, crc, len(stream), 10, 1, 0)
    local = b"PK\x03\x04" + struct.pack("<HH", 20, 0) + fields + b"a" + stream
    central = b"PK\x01\x02" + struct.pack("<HHH", 20, 20, 0) + fields
    central += struct.pack("<HHHLL", 0, 0, 0, 0, 0) + b"a"
    tail = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 1, 1, len(central), len(local), 0)

    unpack(io.BytesIO(local + central + tail), into=tmp_path / "out")

    assert (tmp_path / "out/a").read_bytes() == bytes(10)
