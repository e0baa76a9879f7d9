"""Saves of notebooks: what lies in the shared workspace is neither written through nor believed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from slipway.lab_saves import SaveQueue, Sender, sender_of
from slipway.workload_client import ApiAddress, api_address_from
from tests.slipway.servers import Answer, answer_json, serve

CONTENT = b'{"cells": []}'
NOTEBOOK = {"cells": [], "nbformat": 4}


@pytest.fixture
def door(monkeypatch: pytest.MonkeyPatch) -> ApiAddress:
    """The way to a portal that is away."""
    monkeypatch.setenv("SLIPWAY_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("SLIPWAY_TOKEN", "slw_none")
    monkeypatch.setenv("SLIPWAY_PROJECT", "vision")
    monkeypatch.setenv("SLIPWAY_WORKLOAD", "wl_1")
    address = api_address_from(os.environ)
    assert address is not None
    return address


def test_the_queue_is_in_the_personal_folder(
    door: ApiAddress, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace, personal = tmp_path / "workspace", tmp_path / "person"
    old = workspace / ".slipway" / "people" / "usr_1" / "saves"
    SaveQueue(old).put("forged.ipynb", CONTENT)
    monkeypatch.setenv("SLIPWAY_PERSONAL_DIR", str(personal))
    monkeypatch.setenv("SLIPWAY_LAB_PERSON", "usr_1")
    sender = sender_of(workspace)
    assert sender is not None
    assert list(sender.queue.waiting()) == []
    sender.queue.put("mine.ipynb", CONTENT)
    assert [path.parent for path in personal.rglob("*.save")] == [personal / ".slipway" / "saves"]


@pytest.mark.parametrize("planted", ["link", "folder", "pipe", "nonsense"])
def test_planted_notes_are_not_believed_and_not_written_through(
    door: ApiAddress, tmp_path: Path, planted: str
) -> None:
    workspace, personal = tmp_path / "workspace", tmp_path / "person"
    (workspace / ".slipway").mkdir(parents=True)
    personal.mkdir()
    victim = personal / ".bashrc"
    victim.write_text("as it was")
    known = workspace / ".slipway" / "known.json"
    # The name that releases before wrote to first.
    (workspace / ".slipway" / "known.part").symlink_to(victim)
    if planted == "link":
        known.symlink_to(victim)
    elif planted == "folder":
        (workspace / ".slipway" / "known.part").unlink()
        (workspace / ".slipway").rmdir()
        (workspace / ".slipway").symlink_to(personal)
    elif planted == "pipe":
        os.mkfifo(known)
    else:
        known.write_text(json.dumps({"a.ipynb": ["no note"]}))
    sender = Sender(door, workspace=workspace, queue=SaveQueue(personal / "saves"))
    assert sender._read_known() == {}
    sender._note("a.ipynb", 1, CONTENT)
    assert victim.read_text() == "as it was"
    assert sorted(path.name for path in personal.iterdir()) == [".bashrc"]


class Portal:
    """A portal that has branched notebooks to `paths`, and takes every save."""

    def __init__(self, paths: list[str]) -> None:
        self.paths = paths
        self.gone: set[str] = set()
        self.saved: list[str] = []

    def choose(self, method: str, path: str) -> Answer:
        """Answer a request as the API does."""
        if method == "POST":
            self.saved.append(path.partition("path=")[2])
            return answer_json({"latest": {"number": 1}})
        file = path.partition("notebook-files/")[2].partition("/")[0]
        if file:
            is_gone = self.paths[int(file)] in self.gone
            return answer_json({"detail": "gone"}, 404) if is_gone else answer_json(NOTEBOOK)
        latest = {"origin": "branch", "number": 1}
        items = [
            {"id": str(number), "path": path, "latest": latest}
            for number, path in enumerate(self.paths)
        ]
        return answer_json({"items": items})


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """A workspace, and the personal folder beside it."""
    workspace, personal = tmp_path / "workspace", tmp_path / "person"
    workspace.mkdir()
    (personal / "kept").mkdir(parents=True)
    (personal / "kept" / "sec.ipynb").write_text("as it was")
    return workspace, personal


def sender_to(url: str, folders: tuple[Path, Path]) -> Sender:
    """Return a sender whose portal is at `url`."""
    workspace, personal = folders
    return Sender(
        ApiAddress(url, "slw_none", "vision", "wl_1"),
        workspace=workspace,
        queue=SaveQueue(personal / "saves"),
    )


def everything(folder: Path) -> list[str]:
    """Return what is below a folder."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("z.ipynb", "/dev/zero"),
        ("z.ipynb", "pipe"),
        ("z.ipynb", "folder"),
        ("z.ipynb", "sparse"),
        ("z.ipynb", "loop"),
        ("d/sec.ipynb", "../person/kept"),
        ("d/new/q.ipynb", "../person"),
        ("d/new/folder/q.ipynb", "../person/kept"),
        ("d/q.ipynb", "dangling"),
        (f"{'n' * 249}.ipynb", ""),
        ("personal/x.ipynb", ""),
        (".slipway/x.ipynb", ""),
        ("../person/x.ipynb", ""),
        ("/etc/x.ipynb", ""),
        ("gone.ipynb", ""),
    ],
)
def test_a_bad_path_is_skipped_and_the_others_come(
    folders: tuple[Path, Path], path: str, target: str, caplog: pytest.LogCaptureFixture
) -> None:
    workspace, personal = folders
    place = workspace / path.partition("/")[0]
    if target == "pipe":
        os.mkfifo(place)
    elif target == "folder":
        place.mkdir()
    elif target == "sparse":
        with place.open("wb") as file:
            file.truncate(2**40)
    elif target:
        place.symlink_to("z.ipynb" if target == "loop" else target)
    before = everything(personal)
    portal = Portal([path, "good/ok.ipynb"])
    portal.gone.add("gone.ipynb")
    with serve(portal.choose) as url:
        sender = sender_to(url, folders)
        assert sender.download_restored()
        assert sender.download_restored()
    assert json.loads((workspace / "good" / "ok.ipynb").read_text()) == NOTEBOOK
    assert everything(personal) == before
    assert (personal / "kept" / "sec.ipynb").read_text() == "as it was"
    is_long = path.startswith("n")
    assert not (workspace / "personal").exists()
    assert everything(workspace / ".slipway") == ["known.json"]
    if is_long:
        assert (workspace / path).is_file(), "a name may have 255 bytes"
    else:
        messages = [record.getMessage() for record in caplog.records if path in record.getMessage()]
        assert len(messages) == 1, "once, not every fifteen seconds"


def test_a_folder_that_becomes_a_link_leads_nowhere(folders: tuple[Path, Path]) -> None:
    workspace, personal = folders
    (workspace / "d").mkdir()
    (workspace / "d2").symlink_to(personal / "kept")
    swap = (
        "import ctypes\nlibc = ctypes.CDLL(None)\nprint('swapping', flush=True)\n"
        "while True:\n    libc.renameat2(-100, b'd', -100, b'd2', 2)\n"
    )
    swapper = subprocess.Popen([sys.executable, "-c", swap], cwd=workspace, stdout=subprocess.PIPE)
    assert swapper.stdout is not None
    try:
        assert b"swapping" in swapper.stdout.readline()
        portal = Portal([f"d/race-{number}.ipynb" for number in range(400)])
        with serve(portal.choose) as url:
            sender_to(url, folders).download_restored()
    finally:
        swapper.kill()
        swapper.communicate()
    assert everything(personal) == ["kept", "kept/sec.ipynb"]


@pytest.mark.parametrize("notes", ["[" * 200_000, '{"a":' * 200_000, "[" + "[]," * 2_000_000])
def test_notes_that_nobody_can_read_keep_no_save_back(
    folders: tuple[Path, Path], notes: str
) -> None:
    workspace, _ = folders
    (workspace / ".slipway").mkdir()
    (workspace / ".slipway" / "known.json").write_text(notes)
    portal = Portal([])
    with serve(portal.choose) as url:
        sender = sender_to(url, folders)
        # Linux takes names that are no text.
        for path in ("a.ipynb", "\udcff.ipynb", "b.ipynb"):
            sender.queue.put(path, CONTENT)
        assert sender.send_waiting()
        assert list(sender.queue.waiting()) == []
    assert portal.saved == ["a.ipynb", "%FF.ipynb", "b.ipynb"]
    assert "a.ipynb" in json.loads((workspace / ".slipway" / "known.json").read_text())
