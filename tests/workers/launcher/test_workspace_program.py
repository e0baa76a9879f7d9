"""The process that reads and changes the files of a workspace, in folders that are against it."""

import io
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from slipway.schemas.workspace_files import FileRequest, check_path, name_bytes
from tests.turns import thorough_after

ROOT = Path(__file__).parents[3]
_BOOT = "import sys; sys.path.insert(0, sys.argv[1]); "
_BOOT += "from workers.launcher.workspace_program import main; main()"
_GIB = 1024**3


def ask(
    folder: Path,
    operation: str,
    content: bytes = b"",
    *,
    other: Path | None = None,
    **details: Any,
) -> dict[str, Any]:
    """The answer of the program, with the bytes after it as `content`.

    `other` is the folder to which something is moved.
    """
    limits = {key: details.pop(key, value) for key, value in _LIMITS.items()}
    request = FileRequest(
        id="wfr_1", folder="p/workspace", operation=operation, size_bytes=len(content), **details
    )
    line = json.dumps(request.model_dump() | limits).encode() + b"\n"
    command = [sys.executable, "-I", "-S", "-c", _BOOT, str(ROOT), str(folder)]
    command += [] if other is None else [str(other)]
    done = subprocess.run(
        command, input=line + content, capture_output=True, timeout=60, check=False
    )
    answer, _, rest = done.stdout.partition(b"\n")
    return {**json.loads(answer), "content": rest, "status": done.returncode}


_LIMITS = {"reserve_bytes": 0, "folder_limit_bytes": 100 * _GIB}


def listed(folder: Path) -> list[str]:
    """The names in a folder."""
    return sorted(entry.name for entry in folder.iterdir())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A workspace beside a secret that nothing may reach."""
    (tmp_path / "secret.txt").write_text("SECRET")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "theirs.txt").write_text("SECRET")
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "data").mkdir()
    (workspace / "data" / "a.csv").write_text("x,y\n1,2\n")
    return workspace


@pytest.fixture(params=["one disk", "two disks"])
def personal(request: pytest.FixtureRequest, folder: Path) -> Iterator[Path]:
    """The personal folder: beside the workspace, and on another disk, where no rename leads."""
    if request.param == "one disk":
        (folder.parent / "personal").mkdir()
        yield folder.parent / "personal"
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as other:
        assert Path(other).stat().st_dev != folder.stat().st_dev
        yield Path(other)


@pytest.fixture
def hostile(folder: Path) -> Iterator[Path]:
    """Links out of the folder, a pipe, a socket, odd names."""
    (folder / "link.txt").symlink_to(folder.parent / "secret.txt")
    (folder / "links").symlink_to(folder.parent / "outside")
    (folder / "up").symlink_to("..")
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as bound:
        here = os.open(folder, os.O_RDONLY)
        bound.bind(f"/proc/self/fd/{here}/socket")
        os.close(here)
        yield folder


def test_a_folder_is_listed_with_folders_first_and_links_as_links(hostile: Path) -> None:
    answer = ask(hostile, "list")
    kinds = {entry["name"]: entry["kind"] for entry in answer["entries"]}
    assert kinds == {
        "data": "folder",
        "link.txt": "link",
        "links": "link",
        "up": "link",
        "pipe": "special",
        "socket": "special",
    }
    assert answer["entries"][0]["name"] == "data"


@pytest.mark.parametrize(
    "path", ["link.txt", "links", "links/theirs.txt", "up/secret.txt", "pipe", "socket", "up"]
)
def test_no_link_pipe_or_socket_is_read(hostile: Path, path: str) -> None:
    answer = ask(hostile, "read", path=path)
    assert answer["ok"] is False
    assert answer["content"] == b""


@pytest.mark.parametrize("path", ["../secret.txt", "data/../../secret.txt", "/etc/passwd", "a//b"])
def test_no_path_leads_out(folder: Path, path: str) -> None:
    for operation in ("read", "list", "delete", "mkdir", "write"):
        answer = ask(folder, operation, path=path)
        assert not answer["ok"], operation
        assert answer["code"] in ("invalid", "not_found")
    assert not ask(folder, "move", path="data", target=path)["ok"]
    assert (folder / "data").is_dir()


@pytest.mark.parametrize("path", ["links/new.txt", "up/new.txt", "link.txt", "pipe"])
def test_nothing_is_written_through_a_link(hostile: Path, path: str) -> None:
    for replace in (False, True):
        assert not ask(hostile, "write", b"mine", path=path, replace=replace)["ok"]
    assert (hostile.parent / "secret.txt").read_text() == "SECRET"
    assert listed(hostile.parent / "outside") == ["theirs.txt"]
    assert not ask(hostile, "move", path="data", target="links/data")["ok"]
    assert not ask(hostile, "mkdir", path="links/made")["ok"]


def test_deleting_links_leaves_what_they_lead_to(hostile: Path) -> None:
    (hostile / "data" / "out").symlink_to(hostile.parent / "outside")
    for path in ("link.txt", "links", "up", "pipe", "socket", "data"):
        assert ask(hostile, "delete", path=path)["ok"], path
    assert listed(hostile) == []
    assert (hostile.parent / "outside" / "theirs.txt").exists()


def test_a_zip_has_no_link_and_says_what_it_leaves_out(hostile: Path) -> None:
    answer = ask(hostile, "read", path="")
    with zipfile.ZipFile(io.BytesIO(answer["content"])) as archive:
        assert archive.read("data/a.csv") == b"x,y\n1,2\n"
        report = archive.read("FILES-LEFT-OUT.txt").decode()
        assert b"SECRET" not in b"".join(archive.read(name) for name in archive.namelist())
    assert answer["status"] == 0
    for name in ("link.txt", "links", "pipe", "socket"):
        assert f"{name!r}: " in report


@pytest.mark.parametrize(
    "name",
    thorough_after(
        3,
        [b"two\nlines", b"\xff\xfe", b"x" * 255, b"half \xe2\x82", b"-rf", b"semi;$(id)`", b" . "],
    ),
    ids=repr,
)
def test_odd_names_are_listed_read_moved_and_deleted(folder: Path, name: bytes) -> None:
    (folder / os.fsdecode(name)).write_bytes(b"odd")
    [entry] = [row for row in ask(folder, "list")["entries"] if row["kind"] == "file"]
    shown = entry["name"]
    json.dumps(shown).encode()
    assert name_bytes(check_path(shown)) == name
    assert ask(folder, "read", path=shown)["content"] == b"odd"
    assert ask(folder, "move", path=shown, target="data/plain")["ok"]
    assert ask(folder, "move", path="data/plain", target=shown)["ok"]
    assert listed(folder) == sorted([os.fsdecode(name), "data"])
    assert ask(folder, "delete", path=shown)["ok"]


def test_files_are_written_as_a_whole_and_never_over_another(folder: Path) -> None:
    assert ask(folder, "write", b"one", path="new.txt")["entries"][0]["size_bytes"] == 3
    refused = ask(folder, "write", b"two", path="new.txt")
    assert refused["code"] == "exists"
    assert (folder / "new.txt").read_bytes() == b"one"
    # A second name of the file keeps the old content.
    (folder / "second").hardlink_to(folder / "new.txt")
    assert ask(folder, "write", b"three", path="new.txt", replace=True)["ok"]
    assert (folder / "new.txt").read_bytes() == b"three"
    assert (folder / "second").read_bytes() == b"one"
    assert ask(folder, "write", b"x", path="data", replace=True)["code"] == "exists"
    assert ask(folder, "mkdir", path="data")["code"] == "exists"
    assert ask(folder, "move", path="new.txt", target="second")["code"] == "exists"
    assert ask(folder, "move", path="data", target="data/inner")["code"] == "invalid"


@pytest.mark.parametrize("path", ["links/made/x", "up/made/x", "link.txt/x", "pipe/x", "links/x"])
def test_no_missing_folder_is_created_through_a_link(hostile: Path, path: str) -> None:
    assert not ask(hostile, "write", b"mine", path=path, parents=True)["ok"]
    assert not ask(hostile, "mkdir", path=path, parents=True)["ok"]
    assert listed(hostile.parent) == ["outside", "secret.txt", "workspace"]
    assert listed(hostile.parent / "outside") == ["theirs.txt"]


def test_missing_folders_are_created_for_uploads_that_say_so(folder: Path) -> None:
    assert ask(folder, "write", b"one", path="data/new/a.txt")["code"] == "not_found"
    assert ask(folder, "write", b"one", path="data/new/deep/a.txt", parents=True)["ok"]
    assert (folder / "data/new/deep/a.txt").read_bytes() == b"one"
    for _ in range(2):
        assert ask(folder, "mkdir", path="data/empty/below", parents=True)["ok"]
    assert ask(folder, "mkdir", path="data/a.csv", parents=True)["code"] == "exists"
    assert ask(folder, "mkdir", path="data/a.csv/below", parents=True)["code"] == "not_found"


def test_moves_to_the_other_folder_keep_contents_and_replace_nothing(
    folder: Path, personal: Path
) -> None:
    (folder / "data" / "run.sh").write_text("echo")
    (folder / "data" / "run.sh").chmod(0o4750)
    (folder / "data" / "locked").mkdir(mode=0o500)
    os.utime(folder / "data" / "a.csv", (1, 1_000_000))
    (personal / "mine").mkdir()
    for target in ("mine", "mine/"):
        refused = ask(folder, "move", other=personal, path="data", target=target.strip("/"))
        assert refused["code"] == "exists"
    assert ask(folder, "move", other=personal, path="data", target="no/x")["code"] == "not_found"
    moved = ask(folder, "move", other=personal, path="data", target="mine/data")
    assert (moved["ok"], moved["entries"][0]["kind"]) == (True, "folder"), moved
    assert listed(folder) == []
    assert listed(personal / "mine" / "data") == ["a.csv", "locked", "run.sh"]
    assert (personal / "mine/data/a.csv").read_text() == "x,y\n1,2\n"
    assert (personal / "mine/data/a.csv").stat().st_mtime == 1_000_000
    assert (personal / "mine/data/run.sh").stat().st_mode & 0o777 == 0o750
    assert (personal / "mine/data/locked").stat().st_mode & 0o777 == 0o500
    # Back, over a file: only when this is asked for.
    (folder / "a.csv").write_text("old")
    back: dict[str, Any] = {"path": "mine/data/a.csv", "target": "a.csv"}
    assert ask(personal, "move", other=folder, **back)["code"] == "exists"
    assert (folder / "a.csv").read_text() == "old"
    assert ask(personal, "move", other=folder, **back, replace=True)["ok"]
    assert (folder / "a.csv").read_text() == "x,y\n1,2\n"
    (folder / "kept").mkdir()
    for path in ("mine/data", "mine/data/run.sh"):
        refused = ask(personal, "move", other=folder, path=path, target="kept", replace=True)
        assert refused["code"] == "exists"
    refused = ask(personal, "move", other=folder, path="mine", target="a.csv", replace=True)
    assert refused["code"] == "exists"
    assert not [path for path in (*folder.rglob("*"), *personal.rglob("*")) if "part" in path.name]


def test_moves_to_the_other_folder_follow_no_link(hostile: Path, personal: Path) -> None:
    (hostile / "data" / "out").symlink_to(hostile.parent / "outside")
    (hostile / "data" / "secret").symlink_to(hostile.parent / "secret.txt")
    (personal / "away").symlink_to(hostile.parent / "outside")
    for path in ("links/theirs.txt", "up/secret.txt", "link.txt/x", "../secret.txt", "/etc/passwd"):
        assert not ask(hostile, "move", other=personal, path=path, target="x")["ok"], path
    for target in ("away/x", "../x", "/tmp/x", "away"):  # noqa: S108
        for replace in (False, True):
            moved = ask(
                hostile, "move", other=personal, path="data/a.csv", target=target, replace=replace
            )
            assert not moved["ok"], target
    assert ask(hostile, "move", other=personal, path="data", target="data")["ok"]
    assert ask(hostile, "move", other=personal, path="link.txt", target="link.txt")["ok"]
    # Links came along as links: nothing that they lead to was read, moved or deleted.
    assert (personal / "data" / "out").is_symlink()
    assert (personal / "data" / "secret").is_symlink()
    assert (personal / "link.txt").is_symlink()
    assert listed(hostile.parent / "outside") == ["theirs.txt"]
    assert (hostile.parent / "secret.txt").read_text() == "SECRET"
    assert listed(personal) == ["away", "data", "link.txt"]


def test_a_move_that_cannot_be_done_changes_nothing(hostile: Path) -> None:
    os.mkfifo(hostile / "data" / "pipe")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as other:
        move: dict[str, Any] = {"other": Path(other), "path": "data", "target": "data"}
        refused = ask(hostile, "move", **move)
        assert refused["code"] == "special"
        assert "data/pipe" in refused["detail"]
        for path in ("pipe", "socket"):
            refused = ask(hostile, "move", other=Path(other), path=path, target="x")
            assert refused["code"] == "special"
        (hostile / "data" / "pipe").unlink()
        full = ask(hostile, "move", **move, reserve_bytes=2**62)
        assert full["code"] == "disk_full"
        (hostile / "data" / "big").write_bytes(b"x" * 100_000)
        full = ask(hostile, "move", **move, folder_limit_bytes=50_000)
        assert full["code"] == "folder_full"
        assert listed(Path(other)) == []
        missing = ask(hostile, "move", **move | {"other": Path(other) / "none"})
        assert missing["code"] == "no_workspace"
    assert listed(hostile / "data") == ["a.csv", "big"]


def test_an_upload_that_is_cut_off_leaves_nothing(folder: Path) -> None:
    request = FileRequest(id="w", folder="p", operation="write", path="a", size_bytes=10)
    line = json.dumps(request.model_dump() | _LIMITS).encode() + b"\n"
    command = [sys.executable, "-I", "-S", "-c", _BOOT, str(ROOT), str(folder)]
    done = subprocess.run(command, input=line + b"half", capture_output=True, check=False)
    assert json.loads(done.stdout)["code"] == "cut_off"
    assert listed(folder) == ["data"]


def test_uploads_leave_the_reserve_and_the_limit_of_the_folder(folder: Path) -> None:
    full = ask(folder, "write", b"x", path="a", reserve_bytes=2**62)
    assert full["code"] == "disk_full"
    (folder / "big").write_bytes(b"x" * 100_000)
    full = ask(folder, "write", b"x" * 10_000, path="a", folder_limit_bytes=50_000)
    assert full["code"] == "folder_full"
    assert not (folder / "a").exists()


@pytest.mark.thorough
def test_a_hundred_thousand_files_are_listed_in_parts(folder: Path) -> None:
    many = folder / "many"
    many.mkdir()
    for number in range(100_000):
        os.close(os.open(f"{many}/{number:06d}", os.O_CREAT | os.O_WRONLY))
    answer = ask(folder, "list", path="many", offset=99_990, limit=500)
    assert answer["total"] == 100_000
    assert [entry["name"] for entry in answer["entries"]] == [
        f"{number:06d}" for number in range(99_990, 100_000)
    ]
    assert ask(folder, "list", path="many", search="00077")["total"] == 11
    assert ask(folder, "delete", path="many")["ok"]


def test_deep_trees_are_deleted_and_packed_without_end(folder: Path) -> None:
    descriptor = os.open(folder / "data", os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=descriptor)
        below = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    os.close(descriptor)
    answer = ask(folder, "read", path="data")
    with zipfile.ZipFile(io.BytesIO(answer["content"])) as archive:
        assert "too deep" in archive.read("FILES-LEFT-OUT.txt").decode()
    assert ask(folder, "delete", path="data")["ok"]
    assert listed(folder) == []


@pytest.mark.thorough
def test_a_folder_that_is_replaced_by_a_link_leads_nowhere(folder: Path) -> None:
    """User code swaps a folder for a link out of the workspace, as fast as it can."""
    (folder / "race").mkdir()
    (folder / "race" / "theirs.txt").write_text("mine")
    (folder / "bait").symlink_to(folder.parent / "outside")
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            (folder / "race").rename(folder / "aside")
            (folder / "bait").rename(folder / "race")
            (folder / "race").rename(folder / "bait")
            (folder / "aside").rename(folder / "race")

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        for _ in range(12):
            assert b"SECRET" not in ask(folder, "read", path="race/theirs.txt")["content"]
            ask(folder, "write", b"mine", path="race/new.txt", replace=True)
            content = ask(folder, "read", path="race")["content"]
            assert b"SECRET" not in content
    finally:
        stop.set()
        swapper.join()
    assert listed(folder.parent / "outside") == ["theirs.txt"]


@pytest.mark.thorough
def test_a_folder_that_becomes_a_link_while_it_moves_brings_nothing_from_outside(
    folder: Path, personal: Path
) -> None:
    """User code swaps folders for links out of the workspace, above and inside of what is moved."""
    (folder / "race" / "in").mkdir(parents=True)
    (folder / "race" / "in" / "theirs.txt").write_text("mine")
    (folder / "bait").symlink_to(folder.parent / "outside")
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            with suppress(OSError):
                (folder / "race" / "in").rename(folder / "aside")
            with suppress(OSError):
                (folder / "race" / "in").symlink_to(folder.parent / "outside")
            with suppress(OSError):
                (folder / "race" / "in").unlink()
            with suppress(OSError):
                (folder / "race").mkdir()
            with suppress(OSError):
                (folder / "aside").rename(folder / "race" / "in")

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        for number in range(12):
            ask(folder, "move", other=personal, path="race", target=f"moved-{number}")
            ask(folder, "move", other=personal, path="race/in/theirs.txt", target=f"file-{number}")
            (personal / "gift").write_text("mine")
            ask(personal, "move", other=folder, path="gift", target="race/in/gift", replace=True)
    finally:
        stop.set()
        swapper.join()
    assert listed(folder.parent / "outside") == ["theirs.txt"]
    assert (folder.parent / "outside" / "theirs.txt").read_text() == "SECRET"
    for path in personal.rglob("*"):
        assert path.is_symlink() or path.is_dir() or path.read_text() == "mine"


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    assert ask(tmp_path / "none", "list")["code"] == "no_workspace"
    (tmp_path / "link").symlink_to("/etc")
    assert ask(tmp_path / "link", "list")["code"] == "no_workspace"
